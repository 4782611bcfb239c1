"""The machine's clock is set under a gateway: no limit passes more than its amount, no budget begins again early."""

import asyncio
import logging
import time
from datetime import UTC, datetime

import pytest

from gateway.request.clock import Clock
from tests.gateway.conftest import KEY

LIMIT = {"id": "each", "tenant": "acme", "level": "tenant", "metric": "requests", "amount": 5}
BUDGET = {"id": "month", "tenant": "acme", "level": "tenant", "period": "day", "amount_usd": "0.001"}
HOUR = 3600
ASKED = f"GET /v1/responses/resp_1 HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n\r\n".encode()


class SetClock:
    """A wall clock that a test sets, beside the true time that passes."""

    def __init__(self, at: datetime) -> None:
        self._began_ns = time.monotonic_ns()
        self._at_ns = int(at.timestamp()) * 1_000_000_000
        self.set_seconds = 0.0
        self.passed_seconds = 0.0

    def elapsed_ns(self) -> int:
        return time.monotonic_ns() - self._began_ns + int(self.passed_seconds * 1e9)

    def wall_ns(self) -> int:
        return self._at_ns + self.elapsed_ns() + int(self.set_seconds * 1e9)


@pytest.fixture
def wall(monkeypatch):
    """Let gateways go by a clock that stands at ten to midnight, and that the test sets."""
    clock = SetClock(datetime(2026, 3, 14, 23, 50, tzinfo=UTC))
    monkeypatch.setattr("gateway.process.app.Clock", lambda: Clock(clock.wall_ns, clock.elapsed_ns))
    return clock


async def ready(gateway):
    return (await gateway.ask(b"GET /ready HTTP/1.1\r\nhost: gateway\r\n\r\n")).json


@pytest.fixture
def start(start_gateway, upstream, kit):
    async def start(limits=(), budgets=(), **settings):
        upstream.always(upstream.whole(upstream.completion(prompt=5, output=20)))
        targets = [kit.http_target(upstream.url)]
        config = kit.configuration(("scripted-1", targets), limits=list(limits), budgets=list(budgets))
        return await start_gateway(config, **settings)

    return start


@pytest.mark.parametrize("window", ["minute", "hour", "day"])
async def test_a_limit_lets_its_amount_through_however_the_clock_is_set(start, wall, window):
    gateway = await start([LIMIT | {"window": window}])
    found = []
    for set_seconds in (0, 2 * HOUR, -HOUR, 25 * HOUR, -120, 90):
        wall.set_seconds = set_seconds
        found += [(await gateway.chat()).status for _ in range(3)]
    assert found.count(200) == 5
    wall.passed_seconds += {"minute": 61, "hour": HOUR + 61, "day": 24 * HOUR + 901}[window]
    assert [(await gateway.chat()).status for _ in range(6)].count(200) == 5


@pytest.mark.parametrize("letters", [20, 20_000], ids=["short", "long"])
async def test_a_limit_on_counted_prompts_lets_its_amount_through_however_the_clock_is_set(
    start_gateway, kit, wall, letters
):
    """A long prompt is counted only once its request has been taken."""
    limits = [
        LIMIT | {"window": "minute"},
        LIMIT | {"id": "read", "window": "minute", "metric": "tokens", "amount": 10**9},
    ]
    config = kit.configuration(("scripted-1", [kit.scripted(tokens=1)]), limits=limits)
    gateway = await start_gateway(config)
    found = []
    for set_seconds in (0, 2 * HOUR, -HOUR, 25 * HOUR, -120, 90):
        wall.set_seconds = set_seconds
        found += [(await gateway.chat(messages=[{"role": "user", "content": "a" * letters}])).status for _ in range(3)]
    assert found.count(200) == 5
    wall.passed_seconds += 61
    assert [(await gateway.chat()).status for _ in range(6)].count(200) == 5


async def test_what_asks_no_model_is_counted_however_the_clock_is_set(start, wall):
    gateway = await start([LIMIT | {"window": "minute"}])
    found = []
    for set_seconds in (0, 2 * HOUR, -HOUR, 25 * HOUR):
        wall.set_seconds = set_seconds
        for _ in range(3):
            answer = await gateway.ask(ASKED)
            found.append(answer.status)
    assert found.count(404) == 5 and found.count(429) == 7


async def test_a_budget_begins_again_when_its_period_ends_and_not_when_the_clock_is_set(start, wall):
    gateway = await start(budgets=[BUDGET])
    spent = 0
    while (await gateway.chat()).status == 200:
        spent += 1
    for set_seconds in (2 * HOUR, -HOUR, 24 * HOUR, 0):
        wall.set_seconds = set_seconds
        assert (await gateway.chat()).status == 429
    wall.passed_seconds += 601
    again = 0
    while (await gateway.chat()).status == 200:
        again += 1
    assert again == spent > 10
    records = gateway.requests()
    assert sum(record.cost_pico_usd or 0 for record in records) <= 2 * 1_000_000_000


async def test_what_was_charged_is_charged_once_where_the_clock_goes_back_over_the_end_of_a_period(start, wall):
    gateway = await start(budgets=[BUDGET])
    assert (await gateway.chat()).status == 200
    wall.passed_seconds += 601
    assert (await gateway.chat()).status == 200
    wall.set_seconds = -HOUR
    assert (await gateway.chat()).status == 200
    [rule] = gateway.gateway.directory.snapshot.budgets
    counter = gateway.gateway.counters.open(rule, "")
    cost = gateway.requests()[-1].cost_pico_usd
    assert [ledger.settled for ledger in counter.ledgers()] == [cost, 2 * cost]


async def test_the_clock_that_was_set_is_named_once(start, wall, caplog):
    gateway = await start([LIMIT | {"window": "minute"}])
    assert "clock_set" not in (await ready(gateway))["degraded"]
    wall.set_seconds = 2 * HOUR
    for _ in range(4):
        await gateway.chat()
    found = await ready(gateway)
    assert "clock_set" in found["degraded"] and found["status"] == "ready"
    assert found["clock_set_seconds"] == 2 * HOUR
    await asyncio.sleep(2.5)
    [warning] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "clock was set" in warning.getMessage() and warning.set_seconds == 2 * HOUR


async def test_charges_on_records_stand_where_they_were_made(start, wall):
    gateway = await start([LIMIT | {"metric": "tokens", "amount": 100_000, "window": "minute"}])
    wall.set_seconds = -HOUR
    assert (await gateway.chat()).status == 200
    assert (await gateway.chat(user="ada")).status == 200
    for record in gateway.requests():
        assert max(record.charge_offsets_ns) <= record.duration_ns


async def test_a_restart_with_a_clock_set_back_does_not_empty_windows(start, wall, tmp_path):
    limit = LIMIT | {"window": "day"}
    gateway = await start([limit], data=tmp_path / "same")
    assert [(await gateway.chat()).status for _ in range(6)] == [200] * 5 + [429]
    await gateway.close()
    wall.set_seconds = -HOUR
    again = await start([limit], data=tmp_path / "same")
    assert (await again.chat()).status == 429


async def test_a_route_reads_the_budget_of_the_same_day_where_the_clock_is_set(start_gateway, upstream, kit, wall):
    upstream.always(upstream.whole(upstream.completion(prompt=5, output=20)))
    pools = [(name, [kit.http_target(upstream.url)]) for name in ("large", "small")]
    config = kit.configuration(*pools, budgets=[BUDGET])
    large = {"model": "large", "when": {"min_budget_left": 0.5}}
    config["routes"] = [{"name": "assistant", "choose": [large], "fallbacks": [{"model": "small"}]}]
    gateway = await start_gateway(config)
    while gateway.requests()[-1:] == [] or gateway.requests()[-1].model == "large":
        assert (await gateway.chat(model="assistant")).status == 200
    wall.set_seconds = 2 * HOUR
    assert (await gateway.chat(model="assistant")).status == 200
    assert gateway.requests()[-1].model == "small"
