"""`tollkeeper budgets` against a real control plane, with spending as gateways report it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from backends.control import budgets
from backends.control.budgets import GatewayState, PassedThreshold
from backends.control.database import ControlDatabase
from contracts.recording.moments import unix_ns
from tollkeeper.cli import app

CREATE = ("budgets", "create", "demo", "--period", "month")


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--data", str(data)])


def json_of(data: Path, *arguments: str) -> Any:
    result = run(data, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_budget_is_created_listed_changed_and_deleted(data: Path) -> None:
    created = run(data, *CREATE, "--usd", "50", "--threshold", "50", "--threshold", "80%")
    assert created.exit_code == 0, created.output
    assert "created: 50 USD per month, hard, level tenant" in created.stdout

    (budget,) = json_of(data, "budgets", "list", "demo")
    assert (budget["thresholds"], budget["is_hard"], budget["when_away"]) == ([50, 80], True, "refuse")
    table = run(data, "budgets", "list", "demo").stdout
    assert budget["id"] in table and "50% 80%" in table

    changed = run(data, "budgets", "set", budget["id"], "--usd", "60.5", "--soft", "--threshold", "90")
    assert "set: 60.5 USD per month, soft" in changed.stdout
    assert json_of(data, "budgets", "set", budget["id"], "--no-thresholds")["thresholds"] == []
    (budget,) = json_of(data, "budgets", "list", "demo")
    assert (budget["is_hard"], budget["amount_usd"].rstrip("0")) == (False, "60.5")

    assert json_of(data, "budgets", "delete", budget["id"]) == {"id": budget["id"], "deleted": True}
    assert "tollkeeper budgets create --tenant demo" in run(data, "budgets", "list", "demo").stdout


def test_what_is_left_out_of_a_change_stays(data: Path) -> None:
    options = ("--threshold", "50", "--webhook", "http://127.0.0.1:9/hook", "--ends-at", "2100-01-01T00:00:00Z")
    made = json_of(data, *CREATE, "--usd", "1", "--soft", *options)
    changed = json_of(data, "budgets", "set", made["id"], "--usd", "2")
    kept = ("is_hard", "thresholds", "webhook_url", "ends_at", "when_away")
    assert {name: changed[name] for name in kept} == {name: made[name] for name in kept}

    bare = json_of(data, "budgets", "set", made["id"], "--endless", "--webhook", "")
    assert (bare["ends_at"], bare["webhook_url"]) == (None, "")
    assert not bare["is_hard"]


def test_a_budget_of_gpu_time_for_each_key(data: Path) -> None:
    made = run(data, *CREATE, "--gpu-ms", "5000", "--level", "key", "--subject", "*", "--soft")
    assert "created: 5000 GPU milliseconds per month, soft, level key '*'" in made.stdout
    (budget,) = json_of(data, "budgets", "list", "demo")
    shown = run(data, "budgets", "show", budget["id"]).stdout
    assert "in GPU ms, 5000 for each" in shown and "no spending yet" in shown


def _spend(data: Path, budget: dict[str, Any], settled: int, reserved: int, overdraft: int = 0) -> None:
    """Report as a gateway does, with the threshold of 50 % passed."""
    shown = json_of(data, "budgets", "show", budget["id"])
    start_ns = unix_ns(datetime.fromisoformat(shown["state"]["period_start"]))
    database = ControlDatabase(f"sqlite:///{data.parent / 'control.db'}")
    state = GatewayState(budget["id"], "", start_ns, settled, reserved, overdraft)
    passed = PassedThreshold(budget["id"], "", start_ns, 50, 10**12, settled)
    with database.session() as session:
        budgets.publish_states(session, "gateway-1", [state], datetime.now(UTC))
        budgets.record_event(session, passed, datetime.now(UTC))
    database.close()


def test_show_says_what_of_a_budgets_spending_could_not_be_charged(data: Path) -> None:
    budget = json_of(data, *CREATE, "--usd", "0.0001")
    _spend(data, budget, settled=100_000_000, reserved=0, overdraft=510_000_000)
    lines = {line.split()[0]: line for line in run(data, "budgets", "show", budget["id"]).stdout.splitlines()}
    assert "0.00061 of 0.0001 USD (610.00%): a target ignored max_tokens" in lines["spent"]
    assert "0.00051 USD" in lines["overdraft"] and "0 USD" in lines["remaining"]


def test_show_says_how_a_budget_stands_to_the_pico_dollar(data: Path) -> None:
    budget = json_of(data, *CREATE, "--usd", "1", "--threshold", "50")
    assert "never: no gateway" in run(data, "budgets", "show", budget["id"]).stdout
    _spend(data, budget, settled=600_000_000_001, reserved=100_000_000_000)

    shown = run(data, "budgets", "show", budget["id"]).stdout
    lines = {line.split()[0]: line for line in shown.splitlines()}
    assert "0.600000000001 USD (60.00%)" in lines["spent"]
    assert "0.1 USD" in lines["reserved"]
    assert "0.299999999999 USD" in lines["remaining"]
    assert "less than a tenth" in lines["forecast"] or "by the period's end at this pace" in lines["forecast"]
    assert "from" in lines["period"] and "until" in lines["period"] and "(UTC)" in lines["period"]
    assert "thresholds passed" in shown and "50%" in shown
    state = json_of(data, "budgets", "show", budget["id"], "--tenant", "demo")["state"]
    assert state["subjects"][0]["spent"] == "0.600000000001"


def test_a_budget_is_not_set_below_what_is_spent(data: Path) -> None:
    budget = json_of(data, *CREATE, "--usd", "1")
    _spend(data, budget, settled=600_000_000_000, reserved=0)
    below = run(data, "budgets", "set", budget["id"], "--usd", "0.599999999999")
    assert (below.exit_code, below.stderr.count("\n")) == (2, 1)
    assert "amount_usd" in below.stderr and "0.6 USD are spent" in below.stderr
    assert run(data, "budgets", "set", budget["id"], "--usd", "0.6").exit_code == 0


def test_a_budget_that_has_not_begun_says_when_it_does(data: Path) -> None:
    budget = json_of(data, *CREATE, "--usd", "1", "--starts-at", "2100-01-01T00:00:00Z")
    assert "inactive now, valid from 2100-01-01T00:00:00Z\n" in run(data, "budgets", "show", budget["id"]).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (CREATE, "give either --usd or --gpu-ms"),
        ((*CREATE, "--usd", "1", "--gpu-ms", "1"), "give either --usd or --gpu-ms"),
        ((*CREATE, "--usd", "0"), "amount_usd is '0'"),
        ((*CREATE, "--usd", "-1"), "amount_usd is '-1'"),
        ((*CREATE, "--usd", "0.0000000000001"), "amount_usd is '0.0000000000001'"),
        ((*CREATE, "--gpu-ms", "1.5"), "gpu_milliseconds is '1.5'"),
        ((*CREATE, "--usd", "1", "--threshold", "80", "--threshold", "50"), "thresholds is [80, 50]"),
        ((*CREATE, "--usd", "1", "--threshold", "half"), "thresholds.0 is 'half'"),
        ((*CREATE, "--usd", "1", "--webhook", "mail@example.org"), "webhook_url is 'mail@example.org'"),
        ((*CREATE, "--usd", "1", "--level", "conversation"), "level is 'conversation'"),
        ((*CREATE, "--usd", "1", "--ends-at", "2020-01-01T00:00:00Z"), "ends_at is 2020-01-01"),
        ((*CREATE, "--usd", "1", "--ends-at", "tomorrow"), "ends_at is 'tomorrow'"),
        (("budgets", "create", "demo", "--period", "year", "--usd", "1"), "period is 'year'"),
        (("budgets", "create", "nobody", "--period", "day", "--usd", "1"), "tenant 'nobody' does not exist"),
        (("budgets", "set", "bud_x"), "nothing to change was named; give one of --usd"),
        (("budgets", "set", "bud_x", "--endless", "--ends-at", "2100-01-01T00:00:00Z"), "--endless contradicts"),
        (("budgets", "show", "bud_x"), "there is no budget 'bud_x'"),
        (("budgets", "show", "..", "--tenant", "demo"), "no budget '..'"),
    ],
)
def test_a_refusal_names_the_field_in_one_line(refusing_data: Path, arguments: tuple[str, ...], words: str) -> None:
    refused = run(refusing_data, *arguments)
    assert refused.exit_code == 2
    assert words in refused.stderr
    assert refused.stderr.count("\n") == 1
