"""Drills of runbooks: an alert is raised, the runbook's commands are run, and they find or mend what it is about."""

import json
import re
import shlex
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import typer
from typer.testing import CliRunner

from algorithms.abuse.detection import Detection
from algorithms.abuse.incident import Incident
from analytics.alerts.abuse import abuse
from analytics.alerts.machines import gpu_faults, ledger_mismatches, saturation, telemetry_loss
from analytics.alerts.sources import AlertInputs
from analytics.alerts.spending import (
    bill_mismatches,
    budget_forecasts,
    budget_thresholds,
    spend_anomalies,
    unpriced_usage,
)
from analytics.anomaly.spend import anomalies_of_today
from analytics.reconciliation.report import Reconciler
from backends.control.abuse_incidents import list_incidents, write_incidents
from backends.control.budget_spending import load_spending
from backends.control.budget_states import GatewayState, publish_states
from backends.control.database import ControlDatabase
from backends.control.provider_bills import list_reconciliations
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.moments import unix_ns
from contracts.recording.names import ENGINE_STEPS, GPU_SAMPLES, REQUESTS
from contracts.recording.records import DeviceRecord, StepRecord
from contracts.rules.alerts import Finding, Rule
from contracts.rules.periods import period_bounds
from gateway.config.database_source import DatabaseSource
from tests.analytics.cost.records import request
from tests.tollkeeper.test_books_command import said
from tests.tollkeeper.test_reconcile_command import INPUT, MONTH, OUTPUT, Bills, bills
from tests.tollkeeper.test_store_check import check, step
from tests.tollkeeper.test_store_check import request as recorded
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
    look = AlertInputs(None, CLOSED, reconciliations=rows)  # type: ignore[arg-type]  # this kind asks nothing of the store
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


def on_machine(data: Path, *words: str) -> str:
    """Run a command on an installation whose control plane runs, and return what it prints."""
    done = CliRunner().invoke(app, [*words, "--data", str(data)])
    assert done.exit_code == 0, done.output
    return done.output


def test_drill_of_a_budget_that_refuses(store: Any, data: Path) -> None:
    shutil.copytree(store.data / "secrets", data / "secrets", dirs_exist_ok=True)
    tenant, now = f"tenant-{uuid4().hex[:12]}", datetime.now(UTC)
    on_machine(data, "tenants", "create", tenant)
    on_machine(data, "keys", "create", "--tenant", tenant, "--name", "runaway")
    (key,) = (row["id"] for row in json.loads(on_machine(data, "keys", "list", "--tenant", tenant, "--json")))
    ten = ("--usd", "10", "--period", "month", "--json")
    budget = json.loads(on_machine(data, "budgets", "create", "--tenant", tenant, *ten))["id"]
    who = Identity(tenant, key_id=key)
    writer = store.client("writer")
    spent = [request(now - timedelta(minutes=1), who=who, model="large", cost_pico_usd=10 * USD)]
    writer.insert_arrow("requests", arrow_batch(REQUESTS, spent), deduplication_token=tenant)
    writer.close()
    database = ControlDatabase(f"sqlite:///{data.parent / 'control.db'}")
    with database.session() as session:
        start_ns, _ = period_bounds("month", "UTC", unix_ns(now))
        publish_states(session, "gateway", [GatewayState(budget, "", start_ns, 10 * USD)], now)

    def refusing() -> list[Finding]:
        with database.session() as session:
            standings = load_spending(session, now - timedelta(days=40))
        look = AlertInputs(None, now, standings=standings, made_at={"money": now - timedelta(hours=1)})  # type: ignore[arg-type]
        found = budget_thresholds(look, [Rule.of("money", "budget_threshold", "", (), {})])["money"]
        return [one for one in found if one.severity == "page"]

    (alert,) = refusing()
    assert alert.summary.startswith(f"budget {budget} ({tenant}, this month) refuses requests: 100 % used")
    names = {"BUDGET": budget, "TENANT": tenant, "AMOUNT": "20", "KEY": key}
    show, report, raise_it, revoke = steps("budget-threshold", names)
    assert "percent: 100.00" in on_machine(data, *show) or "100.00" in on_machine(data, *show)
    (most,) = json.loads(on_machine(data, *report, "--store-url", store.url, "--json"))["levels"][-1]["lines"]
    assert (most["key"], most["model"], most["cost_usd"]) == (key, "large", "10.000000000000")
    on_machine(data, *raise_it)
    assert refusing() == []
    source = DatabaseSource(f"sqlite:///{data.parent / 'control.db'}")
    assert key in served(source)
    on_machine(data, *revoke)
    assert key not in served(source)
    source.close()
    database.close()


def test_drill_of_a_failing_target_and_of_a_bad_rollout(data: Path) -> None:
    for words in (
        ("pools", "create", "small"),
        ("targets", "create", "good", "--pool", "small", "--kind", "scripted"),
        ("targets", "create", "failing", "--pool", "small", "--kind", "scripted", "--weight", "5"),
        *(("models", "create", name, "--pool", "small") for name in ("small", "small-v2")),
        ("rollouts", "create", "to-v2", "--route", "chat", "--incumbent", "small", "--candidate", "small-v2"),
    ):
        if words[0] == "rollouts":
            rules = data.parent / "chat.yaml"
            rules.write_text("choose: [{model: small}]")
            on_machine(data, "routes", "create", "chat", str(rules))
        on_machine(data, *words)
    remove, abort, lower = steps("slo-burn", {"TARGET": "failing", "ROLLOUT": "to-v2"})
    source = DatabaseSource(f"sqlite:///{data.parent / 'control.db'}")
    on_machine(data, *lower)
    assert json.loads(on_machine(data, "targets", "show", "failing", "--json"))["weight"] == 1
    on_machine(data, *remove)
    assert [target.id for target in source.load().pools["small"].targets] == ["good"]
    (rollout,) = json.loads(on_machine(data, "rollouts", "list", "--json"))
    assert rollout["state"] == "running"
    on_machine(data, *abort)
    (rollout,) = json.loads(on_machine(data, "rollouts", "list", "--json"))
    assert rollout["state"] == "aborted"
    source.close()


def test_drill_of_records_that_are_missing(other_store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    client = other_store.client()
    requests = [recorded(number) for number in range(4)]
    kept = [step(number, one, 17) for number, one in enumerate(requests, 1) if number != 2]
    for table, records in ((REQUESTS, requests), (ENGINE_STEPS, kept)):
        client.insert_arrow(table.name, arrow_batch(table, records), deduplication_token=f"drill-{table.name}")
    (alert,) = telemetry_loss(AlertInputs(client, datetime.now(UTC)), [Rule.of("lost", "telemetry_loss", "", (), {})])[
        "lost"
    ]
    client.close()
    assert alert.summary == "1 of 4 steps of engine/1 in the last hour are not in the store"
    first, *_ = steps("telemetry-loss", {})
    assert first == ["store", "check"]
    status, report = check(other_store, monkeypatch, tmp_path)
    gaps = [one["detail"] for one in report["findings"] if one["kind"] == "sequence_gap"]
    assert status == 1 and "engine engine/1: 1 of 1-4 missing: 2-2" in gaps


def test_drill_of_a_budget_that_will_be_exceeded(data: Path) -> None:
    tenant = f"tenant-{uuid4().hex[:12]}"
    on_machine(data, "tenants", "create", tenant)
    forever = ("--usd", "10", "--period", "total", "--ends-at", "2044-12-01T00:00:00Z", "--json")
    budget = json.loads(on_machine(data, "budgets", "create", "--tenant", tenant, *forever))["id"]
    database = ControlDatabase(f"sqlite:///{data.parent / 'control.db'}")

    def found(used: int) -> list[Finding]:
        """Look when half of the budget's time has passed."""
        with database.session() as session:
            publish_states(session, "gateway", [GatewayState(budget, "", 0, used)], datetime.now(UTC))
            standings = load_spending(session, NOON - timedelta(days=40))
        (standing,) = standings
        assert standing.end_ns is not None
        middle = datetime.fromtimestamp((standing.counts_since_ns + standing.end_ns) / 2e9, UTC)
        rule = Rule.of("pace", "budget_forecast", "", (), {"after_percent": 10})
        return list(budget_forecasts(AlertInputs(None, middle, standings=standings), [rule])["pace"])  # type: ignore[arg-type]

    assert found(5 * USD) == []
    (alert,) = found(8 * USD)
    assert alert.summary == f"{tenant} will have used 16 USD of 10 USD at the end of this budget, at this pace"
    show, _, raise_it = steps("budget-forecast", {"BUDGET": budget, "TENANT": tenant, "AMOUNT": "20"})
    assert "8" in on_machine(data, *show)
    on_machine(data, *raise_it)
    assert found(8 * USD) == []
    database.close()


def test_drill_of_a_gpu_with_a_fault(store: Any, data: Path) -> None:
    device, now = f"GPU-{uuid4()}", datetime.now(UTC)
    looks = [
        DeviceRecord(
            host=device,
            sequence=number,
            at_ns=unix_ns(now - timedelta(minutes=5 - number)),
            device=device,
            device_model="H200",
            temperature_celsius=celsius,
            ecc_uncorrected=errors,
            xid=xid,
        )
        for number, (celsius, errors, xid) in enumerate([(60.0, 3, None), (89.0, 3, None), (90.0, 4, 79)])
    ]
    client = store.client()
    rule = Rule.of("gpus", "gpu_fault", "", (), {})

    def found() -> dict[str, str]:
        every = gpu_faults(AlertInputs(client, now), [rule])["gpus"]
        return {str(one.facts["fault"]): one.summary for one in every if one.facts["device"] == device}

    client.insert_arrow("gpu_samples", arrow_batch(GPU_SAMPLES, looks[:2]), deduplication_token=f"{device}-1")
    assert found() == {}
    client.insert_arrow("gpu_samples", arrow_batch(GPU_SAMPLES, looks[2:]), deduplication_token=f"{device}-2")
    assert set(found()) == {"xid", "memory", "heat"}
    assert found()["xid"] == f"GPU {device} (H200) of {device}: fault 79 (XID)"
    client.close()
    on_machine(data, "pools", "create", "gpus")
    address = ("--kind", "engine", "--url", "unix:///run/engine.sock")
    for target in ("sound", "faulty"):
        on_machine(data, "targets", "create", target, "--pool", "gpus", *address)
    names = {"TARGET": "faulty", "POOL": "gpus", "ADDRESS": "unix:///run/engine.sock", "XID": "XID"}
    remove, add = steps("gpu-fault", names)
    source = DatabaseSource(f"sqlite:///{data.parent / 'control.db'}")
    on_machine(data, *remove)
    assert [target.id for target in source.load().pools["gpus"].targets] == ["sound"]
    on_machine(data, *add)
    assert {target.id for target in source.load().pools["gpus"].targets} == {"sound", "faulty"}
    source.close()


def test_drill_of_a_saturated_engine(store: Any, data: Path) -> None:
    engine, now = f"engine/{uuid4().hex[:12]}", datetime.now(UTC)
    client = store.client()
    rule = Rule.of("full", "saturation", "", (), {"minutes": 3})

    def found() -> list[str]:
        every = saturation(AlertInputs(client, now), [rule])["full"]
        return [one.summary for one in every if one.facts["engine"] == engine]

    def worked(minutes: range, used: int) -> None:
        made = [
            StepRecord(
                engine=engine,
                sequence=minute,
                started_at_ns=unix_ns(now - timedelta(minutes=minute)),
                busy_ns=1000,
                model="tiny",
                replica=engine,
                running=4,
                waiting=0,
                kv_blocks_used=used,
                kv_blocks_total=100,
            )
            for minute in minutes
        ]
        token = f"{engine}-{used}"
        client.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, made), deduplication_token=token)

    worked(range(1, 6), 89)
    assert found() == []
    worked(range(1, 6), 90)  # the most of a minute counts
    assert found() == [
        f"tiny on {engine} is saturated for 3 minutes: its KV cache is 90% full; first tokens will be late"
    ]
    client.close()
    on_machine(data, "tenants", "create", "acme")
    of_all = ("--metric", "tokens", "--window", "minute", "--amount", "900000", "--json")
    limit = json.loads(on_machine(data, "limits", "create", "--tenant", "acme", *of_all))["id"]
    _, listed, lower = steps("saturation", {"TENANT": "acme", "LIMIT": limit, "AMOUNT": "50000"})
    assert limit in on_machine(data, *listed)
    on_machine(data, *lower)
    source = DatabaseSource(f"sqlite:///{data.parent / 'control.db'}")
    assert [one.amount for one in source.load().limits if one.id == limit] == [50_000]
    source.close()


def test_drill_of_books_that_do_not_match(other_store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    began_ns = unix_ns(hour + timedelta(minutes=20))
    replica = f"replica-{uuid4().hex[:8]}"
    sound, short = (
        recorded(number, started_at_ns=began_ns + number, replica=replica, engine_output_tokens=made)
        for number, made in enumerate((6, 4))
    )  # each has 3 tokens on the bill, one overrun and two computed again
    client = other_store.client()
    rule = Rule.of("books", "ledger_mismatch", "", (), {})

    def found() -> list[str]:
        every = ledger_mismatches(AlertInputs(client, hour + timedelta(minutes=90)), [rule])["books"]
        return [one.summary for one in every if one.facts.get("replica") == replica]

    client.insert_arrow("requests", arrow_batch(REQUESTS, [sound]), deduplication_token=f"{replica}-1")
    assert found() == []
    client.insert_arrow("requests", arrow_batch(REQUESTS, [short]), deduplication_token=f"{replica}-2")
    assert found() == [
        f"replica {replica} produced 10 tokens in the hour from {hour:%Y-%m-%d %H:00} UTC; 12 are recorded"
    ]
    client.close()
    assert steps("ledger-mismatch", {}) == [["store", "check"]]
    status, report = check(other_store, monkeypatch, tmp_path)
    assert status in (0, 1) and "findings" in report


def test_drill_of_usage_without_a_price(store: Any, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(store.data / "secrets", data / "secrets", dirs_exist_ok=True)
    monkeypatch.setenv("TOLLKEEPER_DATABASE_URL", f"sqlite:///{data.parent / 'control.db'}")
    tenant, model, now = f"tenant-{uuid4().hex[:12]}", f"model-{uuid4().hex[:8]}", datetime.now(UTC)
    million = Usage(input_text=10**6, output_text=10**6)
    used = [request(now - timedelta(minutes=5), who=Identity(tenant), model=model, usage=million)]
    writer = store.client("writer")
    writer.insert_arrow("requests", arrow_batch(REQUESTS, used), deduplication_token=tenant)
    reader = store.client("reader")
    rule = Rule.of("money", "unpriced_usage", "", (), {})
    (alert,) = (one for one in unpriced_usage(AlertInputs(reader, now), [rule])["money"] if one.tenant == tenant)
    reader.close()
    writer.close()
    assert f"to {model} in the last day have no price" in alert.summary
    names = {"VERSION": f"{model}/1", "MODEL": model, "TEXT": "corrected"}
    create, _, rerate = steps("unpriced-usage", names)
    on_machine(data, "tenants", "create", tenant)
    on_machine(data, *create)
    booked = json.loads(on_machine(data, *rerate, "--store-url", store.url, "--json"))
    assert booked["amount_usd"] == "0.800000000000"


def served(source: DatabaseSource) -> set[str]:
    """Return the ids of the keys that a gateway takes."""
    return {entry.identity.key_id for entry in source.load().keys.values() if entry.revoked_at_ns is None}


def test_drill_of_an_abused_key(data: Path) -> None:
    def run(*words: str) -> str:
        return on_machine(data, *words)

    run("tenants", "create", "acme", "--name", "Acme")
    run("keys", "create", "--tenant", "acme", "--name", "leaked")
    (key,) = json.loads(run("keys", "list", "--tenant", "acme", "--json"))
    database = ControlDatabase(f"sqlite:///{data.parent / 'control.db'}")
    now = datetime.now(UTC)
    seen = Detection("flood", "alert", 61, 60, 60)
    with database.session() as session:
        write_incidents(session, [Incident.begun("inc-1", "gw", "acme", "", key["id"], seen, unix_ns(now))])
        incidents = list_incidents(session, is_open=True, now=now, limit=10)
    look = AlertInputs(None, now, incidents=incidents)  # type: ignore[arg-type]  # this kind asks nothing of the store
    (alert,) = abuse(look, [Rule.of("abused", "abuse", "", (), {})])["abused"]
    assert alert.facts["key"] == key["id"] and alert.facts["incidents"] == ["inc-1"]

    source = DatabaseSource(f"sqlite:///{data.parent / 'control.db'}")
    assert key["id"] in served(source)
    listed, explained, owned, ended = (
        run(*step) for step in steps("abuse", {"TENANT": "acme", "INCIDENT": "inc-1", "KEY": key["id"]})
    )
    assert "inc-1" in listed and explained.startswith(f"key {key['id']} of acme: 61 nearly identical prompts")
    assert "leaked" in owned and key["id"] in ended
    assert key["id"] not in served(source)  # what every gateway reads within a second
    source.close()
    database.close()


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
    look = AlertInputs(reader, NOON, anomalies=lambda client, now: anomalies_of_today(client, now, tenant=tenant))
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
