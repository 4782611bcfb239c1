"""`tollkeeper limits` against a real control plane, and what it says of what it cannot do."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tollkeeper.cli import app

PER_MINUTE = ("limits", "create", "demo", "--metric", "tokens", "--window", "minute")


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--data", str(data)])


def json_of(data: Path, *arguments: str) -> Any:
    result = run(data, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_limit_is_created_listed_changed_and_deleted(data: Path) -> None:
    created = run(data, *PER_MINUTE, "--amount", "120000")
    assert created.exit_code == 0, created.output
    assert "created: 120000 tokens per minute, level tenant" in created.stdout

    (limit,) = json_of(data, "limits", "list", "demo")
    assert (limit["amount"], limit["window"], limit["level"], limit["when_away"]) == (
        120000,
        "minute",
        "tenant",
        "share",
    )
    assert limit["id"] in run(data, "limits", "list", "demo").stdout  # in one piece, in any terminal

    changed = run(data, "limits", "set", limit["id"], "--amount", "90000", "--when-away", "refuse")
    assert "set: 90000 tokens per minute" in changed.stdout
    (limit,) = json_of(data, "limits", "list", "demo")
    assert (limit["amount"], limit["when_away"]) == (90000, "refuse")

    assert json_of(data, "limits", "delete", limit["id"]) == {"id": limit["id"], "deleted": True}
    assert "tollkeeper limits create --tenant demo" in run(data, "limits", "list", "demo").stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--metric", "concurrency", "--amount", "5"), "5 concurrent requests, level tenant"),
        (("--metric", "gpu_ms", "--amount", "7", "--window", "day"), "7 GPU milliseconds per day"),
        (("--metric", "requests", "--amount", "0", "--window", "second"), "0 requests per second"),
        (
            ("--metric", "tokens", "--amount", "9", "--window", "hour", "--level", "key", "--subject", "*"),
            "9 tokens per hour, level key '*'",
        ),
        (("--metric", "tokens", "--amount", "9", "--level", "conversation"), "9 tokens, level conversation"),
        (
            ("--metric", "output_tokens", "--amount", "9", "--window", "day", "--model", "scripted-1"),
            "9 output tokens per day, level tenant, model 'scripted-1'",
        ),
    ],
)
def test_what_a_limit_allows_is_said_in_words(data: Path, options: tuple[str, ...], words: str) -> None:
    assert words in run(data, "limits", "create", "demo", *options).stdout


@pytest.mark.parametrize("amount", ["0.000000000001", "0.5", "12345.000000000001", "7"])
def test_money_is_shown_to_the_pico_dollar(data: Path, amount: str) -> None:
    created = run(data, "limits", "create", "demo", "--metric", "usd", "--amount", amount, "--window", "hour")
    assert f"created: {amount} USD per hour" in created.stdout
    (limit,) = json_of(data, "limits", "list", "demo")
    assert isinstance(limit["amount_usd"], str)  # a number would lose decimals on its way
    changed = run(data, "limits", "set", limit["id"], "--amount", "0.25", "--tenant", "demo")
    assert "set: 0.25 USD per hour" in changed.stdout


def test_a_limit_is_found_without_naming_its_tenant(data: Path) -> None:
    assert run(data, "tenants", "create", "acme").exit_code == 0
    made = json_of(data, "limits", "create", "acme", "--metric", "requests", "--window", "day", "--amount", "5")
    assert json_of(data, "limits", "set", made["id"], "--amount", "6")["amount"] == 6
    elsewhere = run(data, "limits", "delete", made["id"], "--tenant", "demo")
    assert (elsewhere.exit_code, "tenant 'demo' has no limit" in elsewhere.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*PER_MINUTE, "--amount", "-5"), "amount is -5"),
        ((*PER_MINUTE, "--amount", "many"), "amount is 'many'"),
        ((*PER_MINUTE, "--amount", "1000000000000000000"), "amount is 1000000000000000000"),
        ((*PER_MINUTE, "--amount", "9" * 50), "amount is '999"),
        ((*PER_MINUTE, "--amount", "5", "--level", "group"), "level is 'group'"),
        ((*PER_MINUTE, "--amount", "5", "--level", "team"), "level team needs a subject"),
        ((*PER_MINUTE, "--amount", "5", "--level", "team", "--subject", "web"), "subject is 'web'"),
        ((*PER_MINUTE, "--amount", "5", "--level", "tag", "--subject", "web"), "(field: subject)"),
        ((*PER_MINUTE, "--amount", "5", "--model", "gpt"), "model is 'gpt'"),
        ((*PER_MINUTE, "--amount", "5", "--when-away", "never"), "when_away is 'never'"),
        (("limits", "create", "demo", "--metric", "token", "--amount", "5"), "metric is 'token'"),
        (("limits", "create", "demo", "--metric", "tokens", "--amount", "5"), "needs a window"),
        (("limits", "create", "demo", "--metric", "usd", "--amount", "$5", "--window", "day"), "amount_usd is '$5'"),
        (
            ("limits", "create", "acme", "--tenant", "demo", "--metric", "concurrency", "--amount", "5"),
            "the tenant is given twice, as 'acme' and as --tenant 'demo'; leave one out",
        ),
        (("limits", "list", "acme", "--tenant", "demo"), "leave one out"),
        (("limits", "create", "nobody", "--metric", "tokens", "--amount", "5"), "tenant 'nobody' does not exist"),
        (("limits", "list", "nobody"), "tenant 'nobody' does not exist"),
        (("limits", "set", "lim_x"), "nothing to change was named; give one of --amount"),
        (("limits", "set", "lim_x", "--amount", "5"), "there is no limit 'lim_x'; `tollkeeper limits list`"),
        (("limits", "delete", "..", "--tenant", "demo"), "no limit '..'"),
    ],
)
def test_a_refusal_names_the_field_in_one_line(refusing_data: Path, arguments: tuple[str, ...], words: str) -> None:
    refused = run(refusing_data, *arguments)
    assert refused.exit_code == 2
    assert words in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_limits_that_contradict_each_other_are_refused_by_name(data: Path) -> None:
    assert run(data, *PER_MINUTE, "--amount", "100").exit_code == 0
    by_hour = ("limits", "create", "demo", "--metric", "tokens", "--window", "hour", "--amount")
    less = run(data, *by_hour, "99")
    assert (less.exit_code, less.stderr.count("\n")) == (2, 1)
    assert "99 tokens per hour, less than the 100 tokens per minute" in less.stderr
    assert run(data, *by_hour, "100").exit_code == 0
    same = run(data, *PER_MINUTE, "--amount", "5")
    assert "counts the same already: 100 tokens per minute" in same.stderr
