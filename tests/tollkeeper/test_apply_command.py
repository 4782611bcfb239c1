"""`tollkeeper apply`, `diff`, `export` and `schema` against a real control plane."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # its stubs are a package of their own
from typer.testing import CliRunner, Result

from contracts.access.keys import is_well_formed
from gateway.config.file import FileSource
from tollkeeper.cli import app

FILE = """\
tenants:
  - id: acme
    name: Acme
teams:
  - {id: web, tenant: acme}
pools:
  - name: small
    policy: round_robin
    targets:
      - {name: b, kind: scripted}
      - {name: a, kind: scripted, weight: 2}
models:
  - name: assistant
    pool: small
    defaults: {temperature: 0.2}
prices:
  - model: assistant
    version: assistant/1
    usd_per_mtok: {input_text: 0.15, output_text: 0.6}
keys:
  - {tenant: acme, team: web, name: shop, id: shop}
limits:
  - {tenant: acme, level: key, subject: "*", metric: tokens, window: minute, amount: 1000}
budgets:
  - {tenant: acme, level: key, subject: shop, period: month, amount_usd: 50, thresholds: [80]}
routes:
  - name: front
    choose: [{route: back}]
  - name: back
    choose: [{model: assistant}]
alert_channels:
  - {id: ops, kind: webhook, address: "env:OPS_HOOK"}
alert_rules:
  - {id: money, kind: budget_threshold, channels: [ops], settings: {thresholds: [80]}}
slos:
  - {id: up, indicator: availability, target_percent: 99.9}
"""


def run(data: Path, *arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--data", str(data)], env=environment)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tollkeeper.yaml"
    path.write_text(FILE)
    return path


def apply(data: Path, file: Path, *options: str) -> Result:
    return run(data, "apply", "-f", str(file), *options, OPS_HOOK="https://hooks.example/T0/secret")


def test_a_file_is_planned_applied_and_then_changes_nothing(data: Path, file: Path, tmp_path: Path) -> None:
    planned = apply(data, file, "--dry-run")
    assert planned.exit_code == 2, planned.output
    assert "+ pool small" in planned.stdout and f"({file}:7)" in planned.stdout
    assert "hooks.example" not in planned.stdout
    assert "Plan: 13 to be created, 0 to be changed, 0 to be removed." in planned.stdout
    assert apply(data, file, "--dry-run").stdout == planned.stdout  # nothing was changed

    applied = apply(data, file, "--secrets", str(tmp_path / "secrets.json"))
    assert applied.exit_code == 0, applied.output
    (issued,) = json.loads((tmp_path / "secrets.json").read_text())
    assert is_well_formed(issued["secret"]) and issued["id"] == "shop"
    assert (tmp_path / "secrets.json").stat().st_mode & 0o777 == 0o600

    again = apply(data, file)
    assert (again.exit_code, again.stdout) == (0, "Nothing to change.\n")
    assert apply(data, file, "--dry-run").exit_code == 0

    exported = tmp_path / "exported.yaml"
    assert run(data, "export", "-o", str(exported)).exit_code == 0
    assert "hooks.example" not in exported.read_text() and "secret" not in exported.read_text()
    unchanged = run(data, "diff", "-f", str(exported))
    assert (unchanged.exit_code, unchanged.stdout) == (0, "Nothing to change.\n")


def test_a_change_is_shown_field_by_field_and_pruning_removes_what_is_not_named(data: Path, file: Path) -> None:
    assert apply(data, file).exit_code == 0
    file.write_text(
        FILE.replace("weight: 2", "weight: 5")
        .replace("amount_usd: 50", "amount_usd: 80")
        .replace("  - {id: web, tenant: acme}\n", "  - {id: web, tenant: acme}\n  - {id: app, tenant: acme}\n")
    )
    changed = run(data, "diff", "-f", str(file), OPS_HOOK="https://hooks.example/T0/secret")
    assert changed.exit_code == 2 and "amount_usd: 50 -> 80" in changed.stdout
    assert "1 to be created, 2 to be changed, 0 to be removed" in changed.stdout
    assert apply(data, file).exit_code == 0
    file.write_text("teams:\n  - {id: web, tenant: acme}\nbudgets: []\n")
    kept = run(data, "diff", "-f", str(file))
    assert kept.exit_code == 0
    pruned = run(data, "apply", "-f", str(file), "--prune")
    assert pruned.exit_code == 0, pruned.output
    assert "- team acme/app" in pruned.stdout and "- budget acme:key:shop:usd:month" in pruned.stdout
    assert "0 created, 0 changed, 2 removed" in pruned.stdout
    models = json.loads(run(data, "models", "list", "--json").stdout)
    assert "assistant" in [model["id"] for model in models]  # its section is not in the file


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "policy: round_robin",
            "polcy: random",
            "line 8: pools.0.polcy: a pool has no field 'polcy'; did you mean 'policy'?",
        ),
        ("pool: small", "pool: smal", "line 14: models.0.pool: pool 'smal' does not exist"),
        ("pools:", "pols:", "line 7: pols.0: there is no section 'pols'; did you mean 'pools'?"),
        ("env:OPS_HOOK", "https://hooks.example/T1", "a secret is given by reference"),
        ("env:OPS_HOOK", "env:NOT_THERE", "the environment has no NOT_THERE"),
        ("amount: 1000", "amount: many", "line 23: limits.0.amount: amount is 'many'"),
        ("    pool: small\n", "    pool: small\n    pool: other\n", "line 15: 'pool' is given twice"),
        ("id: web", "id: 'Web Shop'", "line 5: teams.0.id: id is 'Web Shop'"),
        ("[{model: assistant}]", "[{model: other}]", "routes.1"),
        (
            "{name: b, kind: scripted}",
            "{name: b, kind: script}",
            "line 10: pools.0.targets.0.kind: kind is 'script': use",
        ),
        (
            "{name: b, kind: scripted}",
            "{name: b, kind: openai_http}",
            "line 10: pools.0.targets.0: an openai_http target",
        ),
        (
            "{name: b, kind: scripted}",
            "{name: a, kind: scripted}",
            "line 11: pools.0.targets.1.id: pool 'small' has",
        ),
        ("policy: round_robin", "queue: {max_inflight: 3}", "pools.0.queue.max_inflight: queue has no field"),
        ("[{model: assistant}]", "[{route: front}]", "routes lead to each other: front to back to front"),
        ("weight: 2", "weight: .nan", "line 7: pools.0: a value is not plain data; use text, finite numbers"),
        ("id: web", "id: 5", "line 5: teams.0.id: id is 5: write text, in quotes"),
        (
            "version: assistant/1",
            "version: assistant/1\n    valid_from: 2027-01-31",
            "write a time with its zone, such as",
        ),
        ("version: assistant/1", "version: assistant/1\n    valid_from: 2027-13-31", "line 19: month must be in 1..12"),
        (
            "  - name: small",
            "\t- name: small",
            "line 7: found character '\\t' that cannot start any token; indent with",
        ),
        ("models:", "---\nmodels:", "a file holds one document: remove the line '---'"),
        ("name: Acme", "name: !env NAME", "line 3: could not determine a constructor for the tag '!env'; use plain"),
        ("name: Acme", "name: &again [*again]", "line 3: an alias contains itself"),
        ("subject: shop", "subject: shoop", "budgets.0.subject"),
    ],
)
def test_one_bad_object_changes_nothing_and_is_named_with_file_and_line(
    data: Path, file: Path, old: str, new: str, said: str
) -> None:
    assert FILE.count(old) >= 1
    file.write_text(FILE.replace(old, new, 1))
    refused = apply(data, file)
    assert refused.exit_code == 1, refused.output
    assert said in refused.stderr and str(file) in refused.stderr and refused.stderr.count("\n") == 1
    assert "hooks.example" not in refused.output
    tenants = json.loads(run(data, "tenants", "list", "--json").stdout)
    assert [tenant["id"] for tenant in tenants] == ["demo"]


def test_aliases_that_write_out_a_huge_file_are_refused(data: Path, file: Path) -> None:
    rings = "".join(f"x-{number}: &x{number} [{', '.join([f'*x{number - 1}'] * 10)}]\n" for number in range(1, 10))
    file.write_text(f"x-0: &x0 [1, 2]\n{rings}")
    refused = apply(data, file)
    assert refused.exit_code == 1 and "line 7: with its aliases written out this has more than" in refused.stderr


def test_a_section_of_the_files_own_may_hold_anchors(data: Path, file: Path) -> None:
    file.write_text(
        "x-scripted: &scripted {kind: scripted}\npools:\n  - {name: p, targets: [{<<: *scripted, name: a}]}\n"
    )
    applied = apply(data, file)
    assert applied.exit_code == 0 and "+ pool p" in applied.stdout, applied.output


def test_files_without_anything_to_apply_are_an_error(data: Path, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "README.md").write_text("# not YAML")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name, said in (
        ("config", "holds no .yaml, .yml or .json file"),
        ("empty.yaml", "there is no section such as pools: or models:"),
        ("binary.yaml", "is not text in UTF-8 (byte 0)"),
        ("missing.yaml", "cannot be read: No such file or directory"),
    ):
        refused = run(data, "apply", "-f", str(tmp_path / name))
        assert refused.exit_code == 1 and said in refused.stderr and str(tmp_path / name) in refused.stderr


def test_more_objects_than_one_transaction_takes_are_refused_before_they_are_sent(data: Path, file: Path) -> None:
    file.write_text("tenants:\n" + "".join(f"  - {{id: t{number}}}\n" for number in range(5_001)))
    refused = apply(data, file)
    assert refused.exit_code == 1 and "5,001 objects, and at most 5,000 are applied at once" in refused.stderr


def test_a_removal_of_what_is_in_use_changes_nothing_and_says_what_uses_it(data: Path, file: Path) -> None:
    assert apply(data, file).exit_code == 0
    for section, said in (
        ("pools", "cannot be removed: pool"),
        ("models", "cannot be removed: route"),
        ("alert_channels", "cannot be removed: "),
    ):
        file.write_text(f"{section}: []\n")
        refused = run(data, "apply", "-f", str(file), "--prune")
        assert refused.exit_code == 1 and said in refused.stderr, refused.output
    assert apply_text(data, file, FILE).stdout == "Nothing to change.\n"


def apply_text(data: Path, file: Path, text: str) -> Result:
    file.write_text(text)
    return apply(data, file)


def test_a_wrong_option_is_an_error_and_not_pending_changes(data: Path, file: Path) -> None:
    for arguments in (("apply", "--dry", "-f", str(file)), ("diff",), ("apply", "-f", str(file / "none"))):
        assert run(data, *arguments).exit_code == 1


def test_a_price_card_is_replaced_and_never_edited(data: Path, file: Path) -> None:
    assert apply(data, file).exit_code == 0
    file.write_text("prices:\n  - {model: assistant, version: assistant/1, usd_per_mtok: {input_text: 0.2}}\n")
    refused = apply(data, file)
    assert refused.exit_code == 1 and "never edited" in refused.stderr and "replaces" in refused.stderr
    file.write_text(
        "prices:\n"
        "  - {model: assistant, version: assistant/1, usd_per_mtok: {input_text: 0.15, output_text: 0.6}}\n"
        "  - {model: assistant, version: assistant/2, replaces: assistant/1, usd_per_mtok: {input_text: 0.2}}\n"
    )
    assert apply(data, file).exit_code == 0
    again = apply(data, file)
    assert again.stdout == "Nothing to change.\n"


def test_an_export_with_several_budgets_of_one_kind_changes_nothing(data: Path, file: Path, tmp_path: Path) -> None:
    assert apply(data, file).exit_code == 0
    for usd, more in (("50", ()), ("80", ("--soft",)), ("90", ("--soft",))):
        made = run(data, "budgets", "create", "acme", "--usd", usd, "--period", "month", *more)
        assert made.exit_code == 0, made.output
    exported = tmp_path / "exported.yaml"
    assert run(data, "export", "-o", str(exported)).exit_code == 0
    for options in ((), ("--prune",)):
        unchanged = run(data, "diff", "-f", str(exported), *options)
        assert (unchanged.exit_code, unchanged.stdout) == (0, "Nothing to change.\n"), unchanged.output


def test_an_export_of_chosen_sections_and_a_directory_of_files(data: Path, file: Path, tmp_path: Path) -> None:
    assert apply(data, file).exit_code == 0
    folder = tmp_path / "config"
    folder.mkdir()
    for section in ("pools", "models"):
        assert run(data, "export", "--section", section, "-o", str(folder / f"{section}.yaml")).exit_code == 0
    assert yaml.safe_load((folder / "models.yaml").read_text())["models"][0]["name"] == "assistant"
    assert run(data, "diff", "-f", str(folder)).exit_code == 0
    misspelt = run(data, "export", "--section", "model")
    assert misspelt.exit_code == 1 and "did you mean 'models'?" in misspelt.stderr


def test_an_export_runs_a_gateway_without_a_control_plane(
    data: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert apply(data, file).exit_code == 0
    exported = yaml.safe_load(run(data, "export").stdout)
    monkeypatch.setenv("SHOP_KEY", "tk-" + "a" * 43)
    for key in exported["keys"]:
        key["key"] = "env:SHOP_KEY"
    exported["keys"] = [key for key in exported["keys"] if key["id"] == "shop"]
    alone = tmp_path / "alone.yaml"
    alone.write_text(yaml.safe_dump(exported))
    snapshot = FileSource(alone, b"pepper").load()
    assert set(snapshot.models) == {"assistant", "scripted-1"} and set(snapshot.routes) == {"front", "back"}


def test_the_schema_accepts_an_export_and_refuses_a_typo(data: Path, file: Path) -> None:
    schema: Any = json.loads(CliRunner().invoke(app, ["schema"]).stdout)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    assert apply(data, file).exit_code == 0
    exported = yaml.safe_load(run(data, "export").stdout)
    assert list(validator.iter_errors(exported)) == []
    exported["pools"][0]["polcy"] = "random"
    assert any("polcy" in error.message for error in validator.iter_errors(exported))
