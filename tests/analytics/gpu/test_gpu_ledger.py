"""The GPU ledger and its bill: minutes that close, lines and payers that sum to the GPU's hour."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.gpu_time.ledger import LedgerLines, StepTime, ledger_intervals, step_time
from analytics.gpu.cost import device_models, gpu_cost, tenant_use
from analytics.gpu.idle import IDLE_POLICIES, IdlePolicy, idle_policy, peak_values, split_idle
from analytics.gpu.ledger import GpuLedger, gpu_ledger, ledger_as_json, ledger_of
from analytics.scope import Period
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.errors import InvalidRequest
from contracts.pricing.rates import GpuRate, RateBook
from contracts.recording.names import ENGINE_STEPS
from contracts.recording.records import StepRecord
from tests.analytics.gpu.steps import steps_of_minutes

SECOND = 10**9
HOUR_USD = Decimal("3.6")  # a thousandth of a USD a second


@pytest.fixture
def tell(store: Any) -> Iterator[Callable[[list[StepRecord]], None]]:
    writer: StoreClient = store.client("writer")

    def insert(records: list[StepRecord]) -> None:
        writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, records), deduplication_token=str(uuid4()))

    yield insert
    writer.close()


def rate(start: datetime, **fields: object) -> GpuRate:
    return GpuRate("rate-1", "", start - timedelta(days=1), None, "owned", HOUR_USD, **fields)  # type: ignore[arg-type]


def test_stored_steps_make_minutes_that_close_and_a_bill_that_is_paid(
    reader: StoreClient, tell: Callable[[list[StepRecord]], None]
) -> None:
    start = (datetime.now(UTC) - timedelta(hours=1)).replace(second=0, microsecond=0)
    engine, device = f"engine-{uuid4()}", f"GPU-{uuid4()}"
    records = steps_of_minutes(engine, device, start, minutes=3)
    tell(records)
    period = Period(start, start + timedelta(minutes=4))
    ledger = gpu_ledger(reader, period)
    ours = GpuLedger(period, tuple(one for one in ledger.minutes if one.engine == engine))
    lines = ours.by_device()[device]
    assert lines.wall_ns == 180 * SECOND and lines.unexplained_ns == 0
    assert (lines.attributed_ns, lines.recompute_ns, lines.wasted_ns) == (72 * SECOND, 9 * SECOND, 9 * SECOND)
    assert sum(one.no_engine_ns for one in ours.minutes) == 60 * SECOND
    assert all(one.lines.unexplained_ns == 0 for one in ours.minutes)

    use = {name: by for name, by in tenant_use(reader, period).items() if name[0] == engine}
    assert {tenant: sum(useful for useful, _ in by.values()) for (_, tenant), by in use.items()} == {
        "acme": 45 * SECOND,
        "globex": 27 * SECOND,
    }
    bill = gpu_cost(ours, use, RateBook([rate(start)]), device_models(reader, period), "use")
    assert bill.total_pico_usd == 240 * 10**9 == sum(bill.lines_pico_usd.values())
    assert bill.lines_pico_usd["attributed_ns"] == 72 * 10**9
    assert bill.lines_pico_usd["no_engine_ns"] == 60 * 10**9
    paid = {one.tenant: (one.used_pico_usd, one.wasted_pico_usd) for one in bill.tenants}
    assert paid == {"acme": (45 * 10**9, 0), "globex": (27 * 10**9, 9 * 10**9)}
    assert bill.platform_pico_usd == 9 * 10**9  # what a preemption made it do again
    assert bill.platform_idle_pico_usd == 0
    alone = gpu_cost(ours, use, RateBook([rate(start)]), device_models(reader, period), "platform")
    assert alone.platform_idle_pico_usd == alone.platform_pico_usd - 9 * 10**9 > 0
    shown = ledger_as_json(ours, minutes=True)
    assert shown["missing_steps"] == 0 and len(shown["minutes"]) == len(ours.minutes)  # type: ignore[arg-type]


def test_steps_that_are_no_longer_kept_are_refused(reader: StoreClient) -> None:
    now = datetime.now(UTC)
    with pytest.raises(InvalidRequest, match="kept for 72 hours"):
        gpu_ledger(reader, Period(now - timedelta(hours=73), now))


def test_the_last_72_hours_are_there_and_no_other_range_can_be(reader: StoreClient) -> None:
    now = datetime.now(UTC)
    gpu_ledger(reader, Period(now - timedelta(hours=72), now), asked_at=now + timedelta(seconds=5))
    with pytest.raises(InvalidRequest, match="ends before it starts"):
        gpu_ledger(reader, Period(now, now))
    with pytest.raises(InvalidRequest, match="longer than the 72 hours"):
        gpu_ledger(reader, Period(now, now + timedelta(days=365_000)))


def test_a_step_that_reaches_into_the_next_minute_is_used_once() -> None:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    step = StepTime("e", "step", "unknown", _ns(start) + 30 * SECOND, 60 * SECOND, 0, attributed_ns=60 * SECOND)
    ledger = ledger_of(Period(start, start + timedelta(minutes=2)), {"e": (("g",), [step])})
    use = {("e", "acme"): {int(start.timestamp()): (60 * SECOND, 0)}}
    (acme,) = gpu_cost(ledger, use, RateBook([rate(start)]), {}, "platform").tenants
    assert (acme.used_ns, acme.used_pico_usd) == (60 * SECOND, 60 * 10**9)


def known(records: list[StepRecord], device: str) -> dict[str, tuple[tuple[str, ...], list[StepTime]]]:
    return {records[0].engine: ((device,), [step_time(record) for record in records])}


def test_without_a_rate_gpu_time_has_no_price_and_is_not_free() -> None:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    ledger = ledger_of(Period(start, start + timedelta(minutes=3)), known(steps_of_minutes("e", "g", start, 3), "g"))
    bill = gpu_cost(ledger, {}, RateBook(), {}, "platform")
    assert (bill.total_pico_usd, bill.unrated_ns) == (0, 180 * SECOND)


def test_a_rate_that_changes_holds_from_its_minute_on() -> None:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    first = replace(rate(start), valid_to=start + timedelta(minutes=1))
    second = replace(rate(start), version="rate-2", valid_from=start + timedelta(minutes=1), usd_per_hour=HOUR_USD * 2)
    ledger = ledger_of(Period(start, start + timedelta(minutes=3)), known(steps_of_minutes("e", "g", start, 3), "g"))
    bill = gpu_cost(ledger, {}, RateBook([first, second]), {}, "platform")
    assert bill.total_pico_usd == (60 + 2 * 120) * 10**9 and bill.rate_versions == ("rate-1", "rate-2")


def test_two_engines_on_one_gpu_are_paid_once() -> None:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    both = {
        **known(steps_of_minutes("one", "g", start, 2), "g"),
        "two": (("g",), [StepTime("two", "sleep", "unknown", _ns(start), 120 * SECOND, 0)]),
    }
    ledger = ledger_of(Period(start, start + timedelta(minutes=2)), both)
    bill = gpu_cost(ledger, {}, RateBook([rate(start)]), {}, "platform")
    assert bill.total_pico_usd == 120 * 10**9 == sum(bill.lines_pico_usd.values())
    assert bill.lines_pico_usd["attributed_ns"] == 48 * 10**9


def test_power_and_overhead_are_part_of_the_hour() -> None:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    whole = rate(
        start,
        power_watts=Decimal(700),
        usd_per_kwh=Decimal("0.2"),
        power_usage_effectiveness=Decimal("1.5"),
        overhead_usd_per_hour=Decimal("0.19"),
    )
    assert whole.pico_usd_per_hour == 4 * 10**12  # 3.60 + 0.7 kW x 0.20 x 1.5 + 0.19


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.sampled_from(["host", "idle"])), max_size=30),
    st.lists(st.integers(0, 3_000), min_size=1, max_size=6),
)
def test_intervals_laid_end_to_end_are_the_whole(steps: list[tuple[int, int, Any]], cuts: list[int]) -> None:
    times, at = [], 0
    for gap, busy, cause in steps:
        times.append(StepTime("e", "step", cause, at + gap, busy, gap, attributed_ns=busy // 2, wasted_ns=busy // 3))
        at += gap + busy
    bounds = sorted({0, at + 1, *(cut for cut in cuts if cut <= at)})
    found = ledger_intervals(times, bounds).get("e", [])
    whole = ledger_intervals(times, [0, at + 1]).get("e", [])
    assert sum(found, LedgerLines()) == sum(whole, LedgerLines())
    assert all(one.unexplained_ns in (0, 1) for one in whole)


@given(
    st.integers(0, 10**15),
    st.sampled_from(IDLE_POLICIES),
    st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 10**9), min_size=3, max_size=3)),
)
def test_every_policy_pays_idleness_exactly(amount: int, policy: IdlePolicy, use: dict[str, list[int]]) -> None:
    shares = split_idle(amount, policy, use, {"a": 0.25, "b": 0.5})
    assert sum(shares.values()) == amount
    assert all(share >= 0 for share in shares.values())


def test_who_makes_the_peak_pays_for_it() -> None:
    assert peak_values([10, 30]) == [5, 25]
    flat, spiky = [10, 10, 10], [0, 0, 30]
    assert split_idle(400, "use", {"flat": flat, "spiky": spiky}, {}) == {"flat": 200, "spiky": 200}
    by_peak = split_idle(400, "peak", {"flat": flat, "spiky": spiky}, {})
    assert by_peak["spiky"] == 250
    assert split_idle(400, "reservation", {}, {"flat": 0.25}) == {"flat": 100, "": 300}
    assert split_idle(400, "platform", {"flat": flat}, {}) == {"": 400}
    with pytest.raises(InvalidRequest, match="'anyone' is not an idle policy"):
        idle_policy("anyone")


def _ns(moment: datetime) -> int:
    return int(moment.timestamp()) * SECOND


def test_a_machine_with_two_engines_is_paid_once_and_from_its_first_engine_on(
    reader: StoreClient, tell: Callable[[list[StepRecord]], None]
) -> None:
    start = (datetime.now(UTC) - timedelta(hours=1)).replace(second=0, microsecond=0)
    host = f"host-{uuid4().hex[:8]}"
    first = [replace_step(one, replica=host) for one in steps_of_minutes(f"{host}/1", "cpu", start, minutes=4)]
    late = start + timedelta(minutes=2)
    second = [
        replace_step(one, replica=host, model="other") for one in steps_of_minutes(f"{host}/2", "cpu", late, minutes=2)
    ]
    tell(first + second)
    period = Period(
        start - timedelta(minutes=10), start + timedelta(minutes=5)
    )  # 10 minutes before there was an engine
    whole = gpu_ledger(reader, period)
    ours = replace(whole, minutes=tuple(one for one in whole.minutes if one.replica == host))
    cpu = GpuRate("rate-cpu", "cpu", start - timedelta(days=1), None, "owned", HOUR_USD)
    bill = gpu_cost(ours, {}, RateBook([cpu]), {}, "platform")
    assert bill.total_pico_usd == 5 * 60 * 10**9 == sum(bill.lines_pico_usd.values()), "five minutes, once"
    assert bill.lines_pico_usd["no_engine_ns"] == 60 * 10**9, "after both had gone, and not while one was there"
    known = replace(ours, known_before=frozenset({host}))
    assert gpu_cost(known, {}, RateBook([cpu]), {}, "platform").total_pico_usd == 15 * 60 * 10**9


def replace_step(step: StepRecord, **changes: str) -> StepRecord:
    return msgspec.structs.replace(step, **changes)
