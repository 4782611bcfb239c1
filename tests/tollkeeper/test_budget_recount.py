"""`tollkeeper budgets recount` against a real control plane and the real store."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from backends.control.audit import list_audit
from backends.control.budgets import GatewayState, publish_states
from backends.control.database import ControlDatabase
from backends.control.snapshot import load_snapshot
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord
from tests.analytics.cost.records import request
from tollkeeper.cli import app

MICRO = 1_000_000  # pico-USD


@pytest.fixture
def place(store: Any, data: Path) -> list[str]:
    shutil.copytree(store.data / "secrets", data / "secrets", dirs_exist_ok=True)
    return ["--data", str(data), "--store-url", store.url]


@pytest.fixture
def tenant(data: Path) -> str:
    name = f"t-{uuid4()}"[:30]
    made = CliRunner().invoke(app, ["tenants", "create", name, "--data", str(data)])
    assert made.exit_code == 0, made.output
    return name


def run(place: list[str], *arguments: str, **more: Any) -> Result:
    return CliRunner().invoke(app, [*arguments, *place], **more)


def control(data: Path) -> ControlDatabase:
    return ControlDatabase(f"sqlite:///{data.parent / 'control.db'}")


def made_budget(data: Path, tenant: str, *options: str) -> dict[str, Any]:
    made = ["budgets", "create", tenant, "--period", "total", "--usd", "0.05", *options, "--data", str(data), "--json"]
    result = CliRunner().invoke(app, made)
    assert result.exit_code == 0, result.output
    created: dict[str, Any] = json.loads(result.stdout)
    return created


def shown(data: Path, budget: dict[str, Any]) -> list[tuple[str, str]]:
    result = CliRunner().invoke(app, ["budgets", "show", budget["id"], "--data", str(data), "--json"])
    return [(one["subject"], one["spent"]) for one in json.loads(result.stdout)["state"]["subjects"]]


def report(data: Path, budget: dict[str, Any], subject: str, pico_usd: int, gateway: str = "gateway-1") -> None:
    """Report what a gateway has counted."""
    database = control(data)
    with database.session() as session:
        publish_states(session, gateway, [GatewayState(budget["id"], subject, 0, pico_usd)], datetime.now(UTC))
    database.close()


def stored(store: Any, *records: RequestRecord) -> None:
    writer = store.client("writer")
    writer.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=str(uuid4()))
    writer.close()


def burned(tenant: str, at: datetime, charged: int, **more: Any) -> RequestRecord:
    """A request that failed with a 500, as it was charged before: its whole reservation."""
    failed = {"outcome": "error", "status": 502, "error_code": "upstream_error", "cost_basis": "unpriced"}
    return request(at, **{"who": Identity(tenant), "charged_pico_usd": charged, **failed, **more})


def good(tenant: str, at: datetime, cost: int, **more: Any) -> RequestRecord:
    priced = {"cost_pico_usd": cost, "charged_pico_usd": cost, "cost_basis": "price_card", "count_method": "reported"}
    return request(at, **{"who": Identity(tenant), **priced, **more})


def test_a_recount_gives_back_what_failed_requests_had_burned(store: Any, data: Path, place: list[str], tenant: str):
    budget = made_budget(data, tenant)
    later = datetime.now(UTC) + timedelta(seconds=2)
    silent = {"error_code": "upstream_timeout", "status": 504}
    stored(
        store,
        *[burned(tenant, later, 8000 * MICRO) for _ in range(6)],
        burned(tenant, later, 500 * MICRO, **silent),
        good(tenant, later, 1000 * MICRO),
        good("somebody-else", later, 7 * MICRO),
    )
    report(data, budget, "", 49_500 * MICRO)
    dry = run(place, "budgets", "recount", budget["id"], "--dry-run")
    assert dry.exit_code == 0 and "-0.048" in dry.stdout and "not applied" in dry.stdout, dry.output
    assert shown(data, budget) == [("", "0.0495")]
    declined = run(place, "budgets", "recount", budget["id"], input="n\n")
    assert shown(data, budget) == [("", "0.0495")] and "0.0015" in declined.stdout
    for _ in range(2):  # a second recount changes nothing
        done = run(place, "budgets", "recount", budget["id"], "--yes")
        assert done.exit_code == 0, done.output
        assert shown(data, budget) == [("", "0.0015")]
    report(data, budget, "", 50_500 * MICRO)  # a gateway counts on
    report(data, budget, "", 2000 * MICRO, "gateway-2")
    assert shown(data, budget) == [("", "0.0045")]

    database = control(data)
    with database.session() as session:
        [spec] = [one for one in load_snapshot(session).budgets if one.id == budget["id"]]
        entries = list_audit(session, tenant_id=tenant, action="budget.recount")
        changes = [entry.detail["subjects"] for entry in entries]
    database.close()
    assert spec.adjusted("", 0) == -48_000 * MICRO
    assert changes[-1] == [{"subject": "", "spent_before": "0.0495", "spent_after": "0.0015", "adjustment": "-0.048"}]


def test_requests_from_before_the_budget_count_in_its_period(store: Any, data: Path, place: list[str], tenant: str):
    earlier = datetime.now(UTC) - timedelta(hours=5)
    stored(store, good(tenant, earlier, 3 * MICRO), burned(tenant, earlier, 5 * MICRO))
    budget = made_budget(data, tenant)
    assert run(place, "budgets", "recount", budget["id"], "--yes").exit_code == 0
    assert shown(data, budget) == [("", "0.000003")]


def test_each_subject_is_recounted_by_itself(store: Any, data: Path, place: list[str], tenant: str):
    budget = made_budget(data, tenant, "--level", "team", "--subject", "*")
    later = datetime.now(UTC) + timedelta(seconds=2)
    red, blue = Identity(tenant, team="red"), Identity(tenant, team="blue")
    stored(store, burned(tenant, later, 9 * MICRO, who=red), good(tenant, later, MICRO, who=red))
    stored(store, good(tenant, later, 2 * MICRO, who=blue), good(tenant, later, 4 * MICRO))
    report(data, budget, "red", 10 * MICRO)
    report(data, budget, "blue", 2 * MICRO)
    assert run(place, "budgets", "recount", budget["id"], "--yes").exit_code == 0
    assert shown(data, budget) == [("blue", "0.000002"), ("red", "0.000001")]


def test_what_cannot_be_recounted_is_refused_by_name(store: Any, data: Path, place: list[str], tenant: str):
    gpu = CliRunner().invoke(
        app, ["budgets", "create", tenant, "--period", "day", "--gpu-ms", "5", "--data", str(data), "--json"]
    )
    refused = run(place, "budgets", "recount", json.loads(gpu.stdout)["id"])
    assert refused.exit_code != 0 and "only budgets in USD" in refused.output
    empty = made_budget(data, tenant)
    refused = run(place, "budgets", "recount", empty["id"])
    assert refused.exit_code != 0 and "no request under budget" in refused.output
