"""The table of resources against the control plane's own description, and every object's life by commands."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner, Result

from gateway.control.app import create_app
from gateway.control.configuration.table import BY_SECTION
from gateway.control.settings import ControlSettings
from tollkeeper.cli import app
from tollkeeper.resources.resource import Resource
from tollkeeper.resources.table import BY_NAME, RESOURCES


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--data", str(data)])


@pytest.fixture(scope="module")
def described(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("api")
    database = shutil.copy(migrated_sqlite, folder / "control.db")
    settings = ControlSettings(data=folder, database_url=f"sqlite:///{database}")
    with TestClient(create_app(settings)) as client:
        document: dict[str, Any] = client.get("/openapi.json").json()
    return document


def fields_of(document: dict[str, Any], path: str, method: str) -> set[str]:
    operation = document["paths"][path][method]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return set(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"])


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.name)
def test_a_resource_has_the_paths_and_fields_that_the_control_plane_has(
    resource: Resource, described: dict[str, Any]
) -> None:
    listed = described["paths"][resource.path]
    below = re.compile(re.escape(resource.path) + r"/\{[^}]+\}")
    of_one = next(path for path in described["paths"] if below.fullmatch(path))
    one = described["paths"][of_one]
    assert "get" in listed and ("get" in one) == resource.has_show
    assert ("delete" in one) == ("delete" in resource.verbs)
    changed = {"set": ("patch", of_one) if "patch" in one else ("put", of_one), "create": ("post", resource.path)}
    for verb, (method, path) in changed.items():
        if verb not in resource.verbs:
            continue
        ours = {one.name.partition(".")[0] for one in resource.fields if verb in one.verbs}
        if resource.name == "playbooks" and verb == "create":
            ours = {one.name.partition(".")[2] for one in resource.fields}
        assert ours <= fields_of(described, path, method), (resource.name, verb)
        if verb == "create" and resource.is_key_given:
            assert (resource.post_key or resource.key) in fields_of(described, path, method)


def test_what_is_configuration_has_commands() -> None:
    names = {"alert_channels": "channels"}
    assert {names.get(section, section.replace("_", "-")) for section in BY_SECTION} <= set(BY_NAME)


LIVES: dict[str, tuple[tuple[str, ...], ...]] = {
    "teams": (("create", "web", "--tenant", "demo"), ("set", "web", "--name", "Web shop")),
    "projects": (("create", "search", "--tenant", "demo", "--team", "web"), ("set", "search", "--name", "Search")),
    "pools": (("create", "small", "--policy", "random"), ("set", "small", "--queue", "{max_in_flight: 3}")),
    "targets": (("create", "a", "--pool", "small", "--kind", "scripted"), ("set", "a", "--weight", "3")),
    "models": (("create", "org/m", "--pool", "small"), ("set", "org/m", "--context-tokens", "4096", "--inactive")),
    "prices": (
        ("create", "m/1", "--model", "org/m", "--price", "input_text=0.15", "--price", "output_text=0.6"),
        ("end", "m/1", "--valid-to", "now"),
    ),
    "standard-costs": (
        ("create", "s/1", "--model", "x", "--input", "1", "--cached-input", "0.1", "--output", "2"),
        ("end", "s/1", "--valid-to", "now"),
    ),
    "rates": (
        ("create", "eur/1", "--kind", "currency", "--subject", "EUR", "--value", "units_per_usd=0.92"),
        ("end", "eur/1", "--valid-to", "now"),
    ),
    "issuers": (
        ("create", "sso", "--issuer", "https://login.example", "--audience", "llm", "--tenant", "demo"),
        ("set", "sso", "--team-claim", "groups"),
    ),
    "playbooks": (("create", "scripted", "--then", "scripted"), ()),
    "slos": (
        ("create", "fast", "--indicator", "ttft", "--ttft-ms", "500", "--target", "99"),
        ("set", "fast", "--target", "99.5"),
    ),
    "channels": (
        ("create", "mail", "--kind", "email", "--address", "a@example.org"),
        ("set", "mail", "--address", "b@example.org"),
    ),
    "alert-rules": (
        ("create", "money", "--kind", "budget_threshold", "--threshold", "80", "--channel", "mail"),
        ("set", "money", "--inactive"),
    ),
    "tenants": (("create", "acme"), ("set", "acme", "--weight", "3", "--content")),
}


def test_every_object_is_created_listed_shown_changed_and_deleted_by_the_same_verbs(data: Path) -> None:
    for name, (create, change) in LIVES.items():
        resource, key = BY_NAME[name], create[1]
        made = run(data, name, *create)
        if name == "playbooks" and made.exit_code:  # a provider cannot stand in for itself
            continue
        assert made.exit_code == 0, (name, made.output)
        assert made.stdout.startswith(f"{resource.noun} {key}"), made.stdout
        rows = json.loads(run(data, name, "list", "--json").stdout)
        assert key in [row[resource.key] for row in rows], name
        assert key in run(data, name, "list").stdout
        assert key in run(data, name, "show", key).stdout
        if change:
            changed = run(data, name, *change)
            assert changed.exit_code == 0, (name, changed.output)
    shown = json.loads(run(data, "models", "show", "org/m", "--json").stdout)
    assert (shown["context_tokens"], shown["is_active"]) == (4096, False)
    assert run(data, "models", "set", "org/m", "--clear", "context-tokens").exit_code == 0
    assert json.loads(run(data, "models", "show", "org/m", "--json").stdout)["context_tokens"] is None
    for name in reversed(LIVES):
        if "delete" in BY_NAME[name].verbs and name != "playbooks":
            gone = run(data, name, "delete", LIVES[name][0][1])
            assert gone.exit_code == 0, (name, gone.output)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pool", "list"), "'pools'?"),
        (("pools", "creat", "x"), "Did you mean 'create'"),
        (("pools", "create", "x", "--polcy", "cost"), "--policy"),
        (("teams", "show", "wbe"), "did you mean 'web'?"),
        (("teams", "create", "web2"), "give --tenant"),
        (("pools", "set", "demo"), "nothing to change was named; give one of --policy"),
        (("pools", "set", "demo", "--clear", "polcy"), "did you mean 'policy'?"),
        (("keys", "show", "tk-" + "a" * 43), "that is a key's secret"),
        (("models", "create", "x", "--pool", "demo", "--defaults", "{temperatur: 1}"), "temperatur"),
        (("prices", "create", "v", "--model", "m", "--price", "input_text"), "is not NAME=VALUE"),
    ],
)
def test_what_is_misspelt_or_missing_is_named(data: Path, arguments: tuple[str, ...], said: str) -> None:
    assert run(data, "teams", "create", "web", "--tenant", "demo").exit_code == 0
    refused = run(data, *arguments)
    assert refused.exit_code == 2 and said in " ".join(refused.output.split()), refused.output


@pytest.mark.parametrize(
    ("words", "index", "offered"),
    [
        (["tollkeeper", "poo"], 1, "pools"),
        (["tollkeeper", "pools", "cr"], 2, "create"),
        (["tollkeeper", "pools", "create", "x", "--pol"], 4, "--policy"),
        (["tollkeeper", "pools", "create", "x", "--policy", "ran"], 5, "random"),
    ],
)
def test_the_shell_completes_commands_options_and_values(words: list[str], index: int, offered: str) -> None:
    environment = {
        "_TOLLKEEPER_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(index),
        "_TYPER_COMPLETE_TESTING": "1",
    }
    done = CliRunner().invoke(app, [], env=environment, prog_name="tollkeeper")
    assert offered in done.stdout.split(), done.output


@pytest.mark.parametrize("columns", ["80", "120"])
def test_ids_stay_in_one_piece_at_any_width(data: Path, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    made = run(data, "limits", "create", "demo", "--metric", "tokens", "--window", "minute", "--amount", "9")
    assert made.exit_code == 0
    for name in ("keys", "limits", "pools", "models", "prices", "tenants", "targets"):
        rows = json.loads(run(data, name, "list", "--json").stdout)
        table = run(data, name, "list").stdout
        assert rows and all(str(row[BY_NAME[name].key]) in table for row in rows), table
    assert os.environ["COLUMNS"] == columns
