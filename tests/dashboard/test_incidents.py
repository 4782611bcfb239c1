"""Five incidents: the link in the alert's notice opens a page on which the cause is stated in words."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_network
from pathlib import Path
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest

from analytics.alerts.dispatcher import Dispatcher
from analytics.alerts.evaluator import Evaluator
from analytics.alerts.links import Links
from backends.channels.base import ChannelSettings
from backends.channels.table import open_senders
from backends.control.alert_rules import NewRule, create_channel, create_rule
from backends.control.book_periods import ProfileChange, set_profile
from backends.control.budget_states import GatewayState, publish_states
from backends.control.budgets import NewBudget, create_budget
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_tenant
from backends.control.sealer import Sealer
from backends.control.slos import NewSlo, put_slo
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns
from contracts.recording.names import ENGINE_STEPS, REQUESTS
from contracts.recording.records import RequestRecord, StepRecord
from contracts.rules.periods import period_bounds
from tests.dashboard.test_speed_pages import draw_page, opened, words
from tests.receivers import HttpReceiver

MS = 10**6
NOW = datetime.now(UTC).replace(second=0, microsecond=0)
BASE = "https://llm.example"
assert callable(draw_page)  # what `opened` runs


@pytest.fixture
def control(empty_store: Any, tmp_path: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    shutil.copy(migrated_sqlite, tmp_path / "control.db")
    for name, value in empty_store.environment.items():
        if name.startswith("TOLLKEEPER_"):
            monkeypatch.setenv(name, value)
    address = f"sqlite:///{tmp_path / 'control.db'}"
    monkeypatch.setenv("TOLLKEEPER_DATABASE_URL", address)
    database = ControlDatabase(address)
    yield database
    database.close()


def requests(minutes_ago: float, count: int, tenant: str = "acme", **changes: Any) -> list[RequestRecord]:
    at_ns = int((NOW - timedelta(minutes=minutes_ago)).timestamp()) * 10**9
    facts: dict[str, Any] = {
        **{"outcome": "ok", "status": 200, "model": "llama", "pool": "llama", "replica": "m1", "stream": True},
        **{"started_at_ns": at_ns, "duration_ns": 300 * MS, "ttft_ns": 100 * MS, "who": Identity(tenant)},
        **{"usage": Usage(input_text=5, output_text=3)},
        **changes,
    }
    return [RequestRecord(request_id=uuid7(at_ns + number * MS).bytes, **facts) for number in range(count)]


def failed(minutes_ago: float, count: int, **changes: Any) -> list[RequestRecord]:
    facts: dict[str, Any] = {"outcome": "error", "status": 502, "error_code": "upstream_error", "ttft_ns": None}
    return requests(minutes_ago, count, **{**facts, **changes})


def upstream_500s() -> tuple[list[RequestRecord], list[StepRecord]]:
    bad = {"upstream_status": 500, "upstream_error": "server_error", "upstream_message": "out of memory"}
    return [
        *requests(20, 60),
        *requests(20, 30, replica="m2"),
        *failed(3, 40, **bad),
        *requests(3, 30, replica="m2"),
    ], []


def slow_upstream() -> tuple[list[RequestRecord], list[StepRecord]]:
    slow: dict[str, Any] = {"ttft_ns": 3_000 * MS, "duration_ns": 3_500 * MS}
    return [*requests(20, 60), *requests(2, 40, **slow), *requests(2, 20, replica="m2")], []


def bad_rollout() -> tuple[list[RequestRecord], list[StepRecord]]:
    old = {"rollout": "to-new", "arm": "incumbent"}
    new = {"rollout": "to-new", "arm": "candidate", "model": "llama-new", "replica": "n1", "pool": "llama-new"}
    return [*requests(20, 60), *requests(3, 60, **old), *requests(3, 4, **new), *failed(3, 20, **new)], []


def hung_host() -> tuple[list[RequestRecord], list[StepRecord]]:
    silent = {"status": 504, "error_code": "upstream_timeout"}
    at_ns = int((NOW - timedelta(minutes=9)).timestamp()) * 10**9
    step = StepRecord(engine="e1", sequence=1, started_at_ns=at_ns, busy_ns=MS, model="llama", replica="m1")
    return [*requests(20, 60), *failed(3, 40, **silent), *requests(3, 20, replica="m2")], [step]


def used_up_budget() -> tuple[list[RequestRecord], list[StepRecord]]:
    refused: dict[str, Any] = {
        **{"outcome": "rejected", "status": 429, "error_code": "insufficient_quota", "limit": "budget:monthly"},
        **{"replica": "", "pool": "", "ttft_ns": None},
    }
    return [*requests(20, 60), *requests(3, 40, **refused)], []


SLOS = {
    "availability": NewSlo("chat", "availability", Decimal("99.9")),
    "ttft": NewSlo("chat", "ttft", Decimal("99"), {"ttft": Decimal(1000)}),
}
INCIDENTS: dict[str, tuple[Callable[[], Any], str, list[str]]] = {
    "upstream 500s": (
        upstream_500s,
        "availability",
        [
            "40 of 40 failed requests ended with upstream_error, upstream status 500, server_error at target m1",
            "memory",
        ],
    ),
    "slow upstream": (slow_upstream, "ttft", ["Target m1 (pool llama) is slow", "3.00 s since", "100 ms before"]),
    "bad rollout": (
        bad_rollout,
        "availability",
        ["candidate llama-new of rollout to-new fails 83%", "incumbent fails"],
    ),
    "GPU host hung": (hung_host, "availability", ["The GPU host of target m1", "no step since", "upstream_timeout"]),
}


@pytest.mark.parametrize("incident", INCIDENTS)
async def test_an_alerts_link_opens_a_page_that_states_the_cause(
    control: ControlDatabase, empty_store: Any, incident: str
) -> None:
    make, slo, said = INCIDENTS[incident]
    fill(empty_store, *make())
    alert = await notice_of(control, empty_store, "slo_burn", SLOS[slo])
    for part in said:
        assert part in str(alert["cause"])
    assert alert["condition"] and alert["value"] and alert["bound"] and alert["owner"] == "platform team"
    assert alert["runbook"] == "docs/runbooks/slo-burn.md"
    if incident != "slow upstream":
        assert alert["affected"][0]["tenant"] == "acme"
    page = words(open_link(str(alert["link"])))
    for part in said:
        assert part in page


async def test_the_alert_of_a_used_up_budget_leads_to_what_it_refuses(
    control: ControlDatabase, empty_store: Any
) -> None:
    fill(empty_store, *used_up_budget())
    author = Author("test", NOW)
    with control.session() as session:
        create_tenant(session, author, "acme", "Acme")
        new = NewBudget("acme", "tenant", "month", amount_usd=Decimal(100), id="monthly")
        create_budget(session, author, new)
        start_ns, _ = period_bounds("month", "UTC", unix_ns(NOW))
        publish_states(session, "gateway-1", [GatewayState("monthly", "", start_ns, 100 * 10**12)], NOW)
    alert = await notice_of(control, empty_store, "budget_threshold", None)
    said = "40 of 40 refused requests ended with insufficient_quota by budget:monthly"
    assert said in str(alert["cause"]) and alert["severity"] == "page"
    page = words(open_link(str(alert["link"])))
    assert said in page and "budget or quota is used up" in page and "acme (40)" in page


async def test_a_quiet_range_has_no_cause(control: ControlDatabase, empty_store: Any) -> None:
    fill(empty_store, requests(20, 30), [])
    page = words(opened("incident", {"range": "1h"}))
    assert "No failed, refused or slow requests in this range" in page and "Only the last" not in page


async def test_a_range_beyond_six_hours_names_what_is_looked_at(control: ControlDatabase, empty_store: Any) -> None:
    author = Author("ann", NOW - timedelta(minutes=10))
    with control.session() as session:
        create_tenant(session, author, "acme", "Acme")
        set_profile(session, author, "acme", ProfileChange(legal_name="Acme GmbH"))
    page = opened("incident", {"range": "24h"})
    assert "Only the last 6 hours of the range" in words(page)
    (changes,) = [frame.value for frame in page.dataframe if "What" in frame.value]
    assert list(changes["What"]) == ["Tenant acme was created by ann"]  # books change no request


def fill(store: Any, records: list[RequestRecord], steps: list[StepRecord]) -> None:
    writer = store.client("writer")
    writer.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=uuid4().hex)
    if steps:
        writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token=uuid4().hex)
    writer.close()


async def notice_of(control: ControlDatabase, store: Any, kind: str, slo: NewSlo | None) -> dict[str, Any]:
    """Return the one alert that a webhook is sent."""
    author, sealer, reader = Author("test", NOW), Sealer(token_urlsafe(32)), store.client("reader")
    async with HttpReceiver() as receiver:
        with control.session() as session:
            if slo is not None:
                create_tenant(session, author, "acme", "Acme")
                put_slo(session, author, slo, replaces=False)
            create_channel(session, author, "to", "", "webhook", receiver.url, sealer)
            create_rule(session, author, NewRule("slos", kind, "", {"owner": "platform team"}, ["to"]))
        now = datetime.now(UTC)
        assert Evaluator(control, reader, "test").look(now) is not None
        settings = ChannelSettings(10, (ip_network("127.0.0.0/8"),), webhook_secret=b"secret")
        async with open_senders(settings) as senders:
            await Dispatcher(control, senders, lambda: now, sealer, Links(BASE)).send_due()
        reader.close()
        [call] = receiver.calls
        [alert] = call.json["alerts"]
        return dict(alert)


def open_link(link: str) -> Any:
    parts = urlsplit(link)
    assert f"{parts.scheme}://{parts.netloc}" == BASE
    return opened(parts.path.strip("/"), {name: values[0] for name, values in parse_qs(parts.query).items()})
