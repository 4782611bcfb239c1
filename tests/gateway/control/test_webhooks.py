"""Budget events reach their webhook: signed, at least once, and once in the normal case, no matter who delivers."""

import asyncio
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network

import pytest

from backends.control import budgets, organisation
from backends.control.budget_events import due_events, events_of
from backends.control.budgets import BudgetChange, NewBudget, PassedThreshold
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from contracts.control import BudgetEvent
from contracts.recording.moments import unix_ns
from gateway.control.webhooks import WebhookDelivery

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
AUTHOR = Author(name="admin", at=NOW)
SECRET = b"webhook secret"
HERE = (ip_network("127.0.0.0/8"),)


class Receiver:
    """A real HTTP server that answers with what it was told, in turn, and the last for ever."""

    def __init__(self) -> None:
        self.answers = [200]
        self.seconds = 0.0
        self.received: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.received.append(({name.lower(): value for name, value in self.headers.items()}, body))
                time.sleep(receiver.seconds)
                status = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
                try:
                    self.send_response(status)
                    if status == 302:
                        self.send_header("location", f"{receiver.url}/elsewhere")
                    self.send_header("content-length", "0")
                    self.end_headers()
                except ConnectionError:
                    pass  # the caller did not wait

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def passed(database: ControlDatabase, url: str, new: NewBudget | None = None, threshold: int = 50) -> str:
    """Create a budget whose threshold was passed; return the budget's id."""
    with database.session() as session:
        if not organisation.list_tenants(session):
            organisation.create_tenant(session, AUTHOR, "acme", "Acme")
        wanted = new or NewBudget("acme", "tenant", "month", amount_usd=Decimal("12.50"), webhook_url=url)
        budget = budgets.create_budget(session, AUTHOR, wanted)
        scale = 10**12 if wanted.amount_usd is not None else 1
        amount, spent = (12_500_000_000_000, 6_250_000_000_001) if scale > 1 else (8_000_000, 4_500_000)
        event = PassedThreshold(budget.id, "", unix_ns(datetime(2026, 11, 1, tzinfo=UTC)), threshold, amount, spent)
        assert budgets.record_event(session, event, NOW)
        return budget.id


def event_of(database: ControlDatabase, budget: str) -> BudgetEvent:
    with database.session() as session:
        (event,) = events_of(session, budget)
        return event


def deliver(database: ControlDatabase, clock: Clock, *, timeout_seconds: float = 5.0) -> int:
    async def once() -> int:
        delivery = WebhookDelivery(database, SECRET, clock, timeout_seconds, inward=HERE)
        try:
            return await delivery.deliver_due()
        finally:
            await delivery.close()

    return asyncio.run(once())


def test_an_event_is_delivered_once_signed_and_exact(
    control_database: ControlDatabase, receiver: Receiver, clock: Clock
) -> None:
    budget = passed(control_database, receiver.url)
    assert [deliver(control_database, clock) for _ in range(2)] == [1, 0]
    ((headers, body),) = receiver.received
    event = event_of(control_database, budget)
    assert headers["x-tollkeeper-signature"] == "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()
    assert headers["x-tollkeeper-event-id"] == event.id and headers["content-type"] == "application/json"
    assert json.loads(body) == {
        "id": event.id,
        "type": "budget.threshold",
        "budget": budget,
        "tenant": "acme",
        "level": "tenant",
        "subject": "",
        "model": None,
        "threshold_percent": 50,
        "is_refusing": False,
        "amount_usd": "12.5",
        "spent_usd": "6.250000000001",
        "period": "month",
        "period_start": "2026-11-01T00:00:00+00:00",
        "at": NOW.isoformat(),
    }
    assert (event.delivered_at, event.attempts, event.last_error) == (NOW, 1, "")


@pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
def test_gpu_time_is_told_in_milliseconds(control_database: ControlDatabase, receiver: Receiver, clock: Clock) -> None:
    new = NewBudget("acme", "tenant", "day", gpu_milliseconds=8, webhook_url=receiver.url)
    passed(control_database, receiver.url, new)
    assert deliver(control_database, clock) == 1
    told = json.loads(receiver.received[0][1])
    assert (told["gpu_milliseconds"], told["spent_gpu_milliseconds"]) == ("8", "4.5")


@pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
def test_a_webhook_that_fails_is_called_again_after_longer_and_longer_waits(
    control_database: ControlDatabase, receiver: Receiver, clock: Clock
) -> None:
    budget = passed(control_database, receiver.url)
    receiver.answers = [500, 302, 200]
    assert deliver(control_database, clock) == 0
    assert event_of(control_database, budget).last_error == "answered 500"
    for wait, delivered in ((9, 0), (1, 0), (19, 0), (1, 1)):
        clock.forward(wait)
        assert deliver(control_database, clock) == delivered
    assert len(receiver.received) == 3  # and a redirect was not followed
    assert len({headers["x-tollkeeper-event-id"] for headers, _ in receiver.received}) == 1
    event = event_of(control_database, budget)
    assert (event.attempts, event.delivered_at, event.last_error) == (3, clock.now, "")


@pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
def test_a_webhook_is_given_up_after_a_day(control_database: ControlDatabase, receiver: Receiver, clock: Clock) -> None:
    budget = passed(control_database, receiver.url)
    receiver.answers = [503]
    while event_of(control_database, budget).next_attempt_at is not None:
        deliver(control_database, clock)
        clock.forward(3600)
        assert clock.now - NOW < timedelta(days=2)
    event = event_of(control_database, budget)
    assert timedelta(hours=23) <= clock.now - NOW - timedelta(hours=1) <= timedelta(days=1)
    assert (event.delivered_at, event.last_error) == (None, "answered 503")
    clock.forward(86_400)
    assert deliver(control_database, clock) == 0 and len(receiver.received) == event.attempts


def test_two_control_planes_deliver_an_event_once(
    control_database: ControlDatabase, receiver: Receiver, clock: Clock
) -> None:
    passed(control_database, receiver.url)

    async def both() -> list[int]:
        planes = [WebhookDelivery(control_database, SECRET, clock, inward=HERE) for _ in range(2)]
        try:
            return await asyncio.gather(*(plane.deliver_due() for plane in planes))
        finally:
            await asyncio.gather(*(plane.close() for plane in planes))

    assert sum(asyncio.run(both())) == 1
    assert len(receiver.received) == 1


@pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
def test_a_webhook_that_does_not_answer_holds_no_other_up(
    control_database: ControlDatabase, receiver: Receiver, clock: Clock
) -> None:
    receiver.seconds = 0.5
    slow = passed(control_database, receiver.url)
    gone = passed(control_database, "http://127.0.0.1:1/hook")
    assert deliver(control_database, clock, timeout_seconds=0.1) == 0
    assert event_of(control_database, slow).last_error == "did not answer within 0.1 seconds"
    assert event_of(control_database, gone).last_error == "could not be called (ConnectError)"


@pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
def test_an_inward_webhook_is_not_called_unless_the_operator_allows_it(
    control_database: ControlDatabase, receiver: Receiver, clock: Clock
) -> None:
    budget = passed(control_database, receiver.url)

    async def once() -> int:
        delivery = WebhookDelivery(control_database, SECRET, clock)
        try:
            return await delivery.deliver_due()
        finally:
            await delivery.close()

    assert asyncio.run(once()) == 0
    assert receiver.received == []
    assert "TOLLKEEPER_ALERTS_INWARD" in (event_of(control_database, budget).last_error or "")


@pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
def test_without_a_webhook_nothing_is_due_and_one_taken_away_waits(
    control_database: ControlDatabase, receiver: Receiver, clock: Clock
) -> None:
    passed(control_database, "")
    taken = passed(control_database, receiver.url)

    def set_webhook(url: str) -> None:
        with control_database.session() as session:
            budgets.update_budget(session, AUTHOR, "acme", taken, BudgetChange(webhook_url=url))

    set_webhook("")
    with control_database.session() as session:
        assert due_events(session, clock.now) == []
    set_webhook(receiver.url)
    assert deliver(control_database, clock) == 1


@pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
async def test_the_background_task_outlives_a_database_that_is_away(
    control_database: ControlDatabase, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gateway.control import webhooks

    passed(control_database, receiver.url)
    monkeypatch.setattr(webhooks, "_LOOK_SECONDS", 0.01)
    away = ControlDatabase("postgresql://keeper@127.0.0.1:1/control")
    delivery = WebhookDelivery(away, SECRET, inward=HERE)
    task = asyncio.create_task(delivery.run())
    await asyncio.sleep(0.05)
    assert not task.done()
    delivery._database = control_database
    async with asyncio.timeout(10):
        while not receiver.received:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await delivery.close()
    away.close()
