"""The single YAML file: what a good one gives, and that a bad one is refused with file, line and field."""

import textwrap

import pytest

from contracts.access.keys import digest_of
from contracts.errors import ConfigurationError
from gateway.config.file import FileSource

KEY = "tk-" + "A" * 43
PEPPER = b"pepper"
GOOD = f"""\
keys:
  - key: {KEY}
    tenant: acme
pools:
  - name: p
    targets:
      - name: t1
        kind: scripted
      - name: t2
        kind: scripted
        weight: 3
models:
  - name: m
    pool: p
prices:
  - model: m
    version: v1
    usd_per_mtok:
      input_text: 0.15
"""


@pytest.fixture
def load(tmp_path):
    def read(text):
        path = tmp_path / "gateway.yaml"
        path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return FileSource(path, PEPPER).load()

    return read


def test_a_good_file_gives_keys_pools_models_and_prices(load):
    snapshot = load(GOOD)
    entry = snapshot.keys[digest_of(KEY, PEPPER)]
    assert entry.identity.tenant == "acme" and entry.identity.key_id.startswith("key_")
    assert [(target.id, target.weight) for target in snapshot.pools["p"].targets] == [("t1", 1), ("t2", 3)]
    assert snapshot.models["m"].pool == "p"
    assert KEY not in repr(snapshot)


def test_a_key_may_stand_in_the_environment_or_a_file(load, monkeypatch, tmp_path):
    monkeypatch.setenv("TEAM_KEY", KEY)
    (tmp_path / "key").write_text(KEY + "\n")
    for reference in ("env:TEAM_KEY", f"file:{tmp_path / 'key'}"):
        assert digest_of(KEY, PEPPER) in load(GOOD.replace(KEY, reference)).keys


# (what is replaced, by what, the line, words of the message)
WRONG = {
    "a type": ("weight: 3", "weight: three", 11, ["pools.0.targets.1.weight", "whole number"]),
    "a limit": ("weight: 3", "weight: 0", 11, ["weight", "at least 1"]),
    "a misspelt field": ("weight: 3", "wieght: 3", 11, ["wieght"]),
    "a misspelt block": ("models:\n", "limitz:\n  - a\nmodels:\n", 12, ["limitz"]),
    "a missing field": ("    tenant: acme\n", "", 2, ["keys.0.tenant", "required"]),
    "a missing list": ("models:\n  - name: m\n    pool: p\n", "", 1, ["models", "required"]),
    "an unknown policy": ("- name: p\n", "- name: p\n    policy: fastest\n", 6, ["policy", "round_robin"]),
    "an unknown leaf": ("input_text: 0.15", "input_txt: 0.15", 19, ["input_txt"]),
    "a price that is not a number": ("0.15", "cheap", 19, ["input_text", "write a number"]),
    "a pool given twice": (
        "models:\n",
        "  - {name: p, targets: [{name: x, kind: scripted}]}\nmodels:\n",
        12,
        ["pool 'p'", "twice"],
    ),
    "a target given twice": ("name: t2", "name: t1", 9, ["target 't1'", "twice"]),
    "a model given twice": ("prices:\n", "  - {name: m, pool: p}\nprices:\n", 15, ["model 'm'", "twice"]),
    "a price version given twice": (
        "      input_text: 0.15\n",
        "      input_text: 0.15\n  - {model: n, version: v1, usd_per_mtok: {}}\n",
        20,
        ["price version 'v1'", "twice"],
    ),
    "a key of the platform's own": ("tenant: acme", "tenant: _platform", 3, ["keys.0.tenant", "shadows", "billed"]),
    "the platform's own as a tenant": (
        "prices:\n",
        "tenants: [{id: _platform}]\nprices:\n",
        15,
        ["tenants.0.id", "shadows"],
    ),
    "an issuer of the platform's own": (
        "prices:\n",
        "issuers: [{issuer: https://id.example, audience: a, tenant: _platform}]\nprices:\n",
        15,
        ["issuers.0.tenant", "shadows"],
    ),
    "broken YAML": ("    tenant: acme", "   tenant: acme", 3, []),
    "a tab": ("    tenant", "\ttenant", 3, ["cannot start any token"]),
    "an unknown tag": ("tenant: acme", "tenant: !!python/object:os.system acme", 3, ["constructor"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_its_line(load, name, tmp_path):
    old, new, line, words = WRONG[name]
    assert old in GOOD
    with pytest.raises(ConfigurationError) as refused:
        load(GOOD.replace(old, new, 1))
    message = refused.value.message
    assert message.startswith(f"{tmp_path / 'gateway.yaml'}, line {line}:"), message
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace(KEY, "sk-not-ours"), ["acme", "malformed"]),
        (GOOD.replace(KEY, "env:NOT_SET_ANYWHERE"), ["NOT_SET_ANYWHERE", "not set"]),
        (GOOD.replace(KEY, "file:/nowhere/key"), ["/nowhere/key"]),
        (GOOD.replace("    pool: p", "    pool: q"), ["'m'", "'q'", "known pools: p"]),
        (GOOD.replace("0.15", "-1"), ["v1", "input_text", "-1"]),
        (GOOD.replace("tenant: acme", "tenant: acme\n    expires_at: 2026-02-30"), ["gateway.yaml"]),
        (GOOD.encode() + b"# \xff\xfe", ["gateway.yaml"]),
        ("", ["gateway.yaml, line 1", "keys", "required"]),
        ("- a\n- b\n", ["gateway.yaml", "fields with values"]),
        ("{", ["gateway.yaml"]),
    ],
)
def test_other_faults_are_one_line_as_well(load, text, words):
    with pytest.raises(ConfigurationError) as refused:
        load(text)
    message = refused.value.message
    assert all(word in message for word in words), message
    assert "\n" not in message and "sk-not-ours" not in message and KEY not in message


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="none.yaml cannot be read"):
        FileSource(tmp_path / "none.yaml", PEPPER).load()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        FileSource(tmp_path, PEPPER).load()


def test_a_file_never_changes_its_mind(load, tmp_path):
    load(GOOD)
    assert FileSource(tmp_path / "gateway.yaml", PEPPER).poll(0) is None
