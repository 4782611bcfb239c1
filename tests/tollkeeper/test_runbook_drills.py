"""Drills of runbooks: an alert is raised, the runbook's commands are run, and they find or mend what it is about."""

import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import typer

from analytics.alerts.sources import Look
from analytics.alerts.spending import bill_mismatches, spend_anomalies
from analytics.anomaly.spend import anomalies_of_today
from analytics.reconciliation.report import Reconciler
from backends.control.provider_bills import list_reconciliations
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.recording.names import REQUESTS
from contracts.rules.alerts import Finding, Rule
from tests.analytics.cost.records import request
from tests.tollkeeper.test_books_command import said
from tests.tollkeeper.test_reconcile_command import INPUT, MONTH, OUTPUT, Bills, bills
from tollkeeper.cli import app

__all__ = ["bills"]  # a fixture
RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
CLOSED = datetime(2045, 4, 1, tzinfo=UTC)
NOON = datetime(2044, 11, 18, 12, tzinfo=UTC)
USD = 10**12


def steps(runbook: str, names: Mapping[str, str]) -> list[list[str]]:
    """Return the runbook's commands in their order, its names in capitals replaced."""
    found = re.findall(r"`tollkeeper ([^`]+)`", (RUNBOOKS / f"{runbook}.md").read_text())
    return [shlex.split(re.sub(r"\b[A-Z]{3,}\b", lambda word: names[word[0]], step)) for step in found]


COMMANDS = {
    f"{page.stem}: {command}": command
    for page in sorted(RUNBOOKS.glob("*.md"))
    for command in re.findall(r"`tollkeeper ([^`]+)`", page.read_text())
}


@pytest.mark.parametrize("step", COMMANDS)
def test_each_command_of_a_runbook_exists_with_its_options(step: str) -> None:
    words = shlex.split(COMMANDS[step])
    command: Any = typer.main.get_command(app)
    context = command.make_context("tollkeeper", words)
    while hasattr(command, "commands"):
        words = [*context._protected_args, *context.args]
        name, command, words = command.resolve_command(context, words)
        if not hasattr(command, "commands"):
            break
        context = command.make_context(name, words, parent=context)
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= known


def mismatches(drilled: Bills, hours: int) -> list[Finding]:
    """Compare bills with what is recorded, as is done every six hours, and return what the rule finds of this one."""
    client = drilled.store.client("reader")
    Reconciler(drilled.database, client, lambda: CLOSED + timedelta(hours=hours)).write_due()
    client.close()
    with drilled.database.session() as session:
        rows = [row for row in list_reconciliations(session) if row.provider == drilled.provider]
    look = Look(None, CLOSED, reconciliations=rows)  # type: ignore[arg-type]  # this kind asks nothing of the store
    return list(bill_mismatches(look, [Rule.of("bills", "bill_mismatch", "", (), {"unknown_usd": 1.0})])["bills"])


def test_drill_of_a_bill_that_has_lines_of_a_key_that_is_not_ours(bills: Bills) -> None:
    bills.used(3)
    bills.import_(bills.file((INPUT, "0.003", 3_000), (OUTPUT, "0.0012", 300)))
    bills.import_(bills.file((INPUT, "2", 2_000_000), key="proj_other"))
    (alert,) = mismatches(bills, 0)
    assert f"tollkeeper reconcile show {bills.provider} {MONTH} --cause unknown" in alert.summary

    names = {"PROVIDER": bills.provider, "MONTH": MONTH, "KEY": "proj_1", "TARGET": "target-1"}
    names |= {"NAME": "unused", "MODEL": "unused"}
    show, register, *_ = steps("bill-mismatch", names)
    (line,) = said(*show, *bills.place)["differences"]
    assert (line["day"], line["model"], line["usd"]) == ("2045-03-03", "gpt-4o-2024-08-06", "2.000000000000")
    said(*register, *bills.data)
    assert mismatches(bills, 6) == []
    assert bills.report()[1] == {"not_through_us": "2.000000000000"}


def test_drill_of_a_key_that_spends_far_more_than_its_tenants_past(store: Any, bills: Bills) -> None:
    tenant = f"tenant-{uuid4().hex[:12]}"
    usual, runaway = Identity(tenant, key_id="key_usual"), Identity(tenant, key_id="key_runaway", user="ann")
    records = [
        request(NOON - timedelta(days=back, hours=3), who=usual, model="small", cost_pico_usd=10 * USD)
        for back in range(29)
    ]
    records += [
        request(NOON - timedelta(hours=2, seconds=number), who=runaway, model="large", cost_pico_usd=USD)
        for number in range(60)
    ]
    writer = store.client("writer")
    writer.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=tenant)
    writer.close()
    reader = store.client("reader")
    look = Look(reader, NOON, anomalies=lambda client, now: anomalies_of_today(client, now, tenant=tenant))
    (alert,) = spend_anomalies(look, [Rule.of("odd", "spend_anomaly", "", (), {"least_usd": 5.0})])["odd"]
    reader.close()
    assert alert.tenant == tenant and alert.facts["key"] == "key_runaway"

    day, after = (f"{moment:%Y-%m-%d}" for moment in (NOON, NOON + timedelta(days=1)))
    names = {"TENANT": tenant, "DAY": day, "NEXT": after, "KEY": "key_runaway"}
    breakdown, *_ = steps("spend-anomaly", names)
    lines = said(*breakdown, *bills.place)["levels"][-1]["lines"]
    most = max(lines, key=lambda line: line["cost_pico_usd"])
    assert (most["key"], most["model"], most["user"]) == ("key_runaway", "large", "ann")
    assert most["cost_usd"] == "60.000000000000"
