"""`tollkeeper accounts` against a real control plane: people are let in, moved and kept out from a terminal."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from tollkeeper.cli import app


def run(data: Path, *arguments: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(app, ["accounts", *arguments, "--data", str(data)], input=typed)


def listed(data: Path) -> Any:
    result = run(data, "list", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_an_account_is_made_moved_kept_out_and_removed(data: Path) -> None:
    made = run(data, "add", "Ada@Example.com", "--role", "finance")
    assert made.exit_code == 0, made.output
    assert "user ada@example.com may sign in as finance" in made.stdout
    password = made.stdout.rpartition("password, shown this once: ")[2].strip()
    assert len(password) == 20
    (account,) = listed(data)
    assert (account["role"], account["has_password"], account["is_active"]) == ("finance", True, True)

    assert "is admin of demo" in run(data, "grant", "ada@example.com", "--role", "admin", "--tenant", "demo").stdout
    unsaid = run(data, "grant", "ada@example.com", "--role", "finance")
    assert unsaid.exit_code != 0 and "--all-tenants" in unsaid.output
    wide = run(data, "grant", "ada@example.com", "--role", "finance", "--all-tenants")
    assert "ada@example.com is finance" in wide.stdout
    assert "is disabled" in run(data, "close", "ada@example.com").stdout
    assert "kept out" in run(data, "list").stdout
    assert "may sign in again" in run(data, "open", "ada@example.com").stdout
    changed = run(data, "password", "ada@example.com", "--password-stdin", typed="a new good password\n")
    assert "has a new password" in changed.stdout and "a new good password" not in changed.stdout
    assert f"user {account['id']} removed" in run(data, "remove", account["id"]).stdout
    assert "tollkeeper accounts add EMAIL --role ROLE" in run(data, "list").stdout


def test_what_cannot_be_is_one_line_that_says_why(data: Path) -> None:
    refused = run(data, "add", "bob@example.com", "--role", "team_lead")
    assert refused.exit_code != 0 and "a team lead needs `team`" in refused.output
    assert run(data, "grant", "nobody@example.com", "--role", "finance", "--all-tenants").exit_code != 0
    short = run(data, "add", "bob@example.com", "--role", "finance", "--password-stdin", typed="short\n")
    assert short.exit_code != 0 and "password" in short.output and "short" not in short.output.replace("shorter", "")
