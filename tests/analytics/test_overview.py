"""The overview's numbers against an independent recomputation, in plain Python, from the records themselves."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics import percentiles
from analytics.overview import Overview, overview
from analytics.percentiles import Quantiles
from analytics.scope import Period, Scope
from analytics.series import series
from analytics.volume import Volume
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps, unpack_gaps
from contracts.metering.usage import Usage
from contracts.pricing.price_state import price_state
from contracts.recording.records import Outcome, RequestRecord
from tests.analytics.cost.records import usages

Record = Callable[[Sequence[RequestRecord]], None]

_OUTCOMES: list[Outcome] = ["ok", "ok", "ok", "error", "cancelled", "rejected"]
_LENGTHS = [timedelta(minutes=7), timedelta(hours=6), timedelta(hours=30), timedelta(days=14), timedelta(days=20)]


@pytest.fixture(scope="module")
def free_days() -> Iterator[datetime]:
    """Provide each test a stretch of days that no other uses: ahead of the clock, where nothing expires."""
    first = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=10)
    return (first + timedelta(days=30 * number) for number in count())


def request(moment: datetime, tenant: str = "acme", model: str = "llama", **fields: object) -> RequestRecord:
    """Create a record that came at a moment."""
    values: dict[str, object] = {
        "request_id": uuid4().bytes,
        "started_at_ns": int(moment.timestamp()) * 10**9 + moment.microsecond * 1000,
        "duration_ns": 5 * 10**8,
        "who": Identity(tenant),
        "model": model,
        "stream": True,
        **fields,
    }
    return RequestRecord(**values)  # type: ignore[arg-type]  # the tests name fields by keyword


@st.composite
def requests(draw: st.DrawFn, start: datetime, length: timedelta) -> RequestRecord:
    """A request somewhere from an hour before a range until an hour after it."""
    hour = timedelta(hours=1)
    offset = draw(st.timedeltas(-hour, length + hour))
    return request(
        start + offset,
        draw(st.sampled_from(["acme", "globex", "it's; a \\ 'tenant'"])),
        draw(st.sampled_from(["llama", "qwen", ""])),
        outcome=draw(st.sampled_from(_OUTCOMES)),
        stream=draw(st.booleans()),
        ttft_ns=draw(st.none() | st.integers(1, 10**11)),
        gaps=pack_gaps(draw(st.lists(st.integers(0, 10**6), max_size=12))),
        usage=draw(usages),
        cost_pico_usd=draw(st.none() | st.integers(0, 10**15)),
    )


def expected_quantiles(values: Sequence[int]) -> Quantiles | None:
    """The value at rank floor(level * n), as ClickHouse documents `quantileExact`."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p95, p99 = (ordered[int(level * len(ordered))] for level in (0.5, 0.95, 0.99))
    return Quantiles(len(ordered), p50, p95, p99)


def expected_volume(records: Sequence[RequestRecord]) -> Volume:
    admitted = [record for record in records if record.outcome != "rejected"]
    unknown, unpriced, failed = (
        [record for record in admitted if price_state(record) == state]
        for state in ("unknown_usage", "unpriced", "failed")
    )
    used = not unknown or len(unknown) + len(failed) < len(admitted)
    priced = not (unpriced or unknown) or len(unpriced) + len(unknown) + len(failed) < len(admitted)
    cost = Decimal(sum(record.cost_pico_usd or 0 for record in records)) / 10**12
    return Volume(
        requests=len(records),
        errors=sum(record.outcome == "error" for record in records),
        rejected=len(records) - len(admitted),
        cancelled=sum(record.outcome == "cancelled" for record in records),
        streamed=sum(record.stream for record in records),
        input_tokens=sum(record.usage.input_tokens or 0 for record in records) if used else None,
        cached_input_tokens=sum(record.usage.cache_read_tokens or 0 for record in records) if used else None,
        output_tokens=sum(record.usage.output_tokens or 0 for record in records) if used else None,
        cost_usd=cost if priced else None,
        unpriced_requests=len(unpriced),
        unknown_usage_requests=len(unknown),
        failed_requests=len(failed),
    )


def within(records: Sequence[RequestRecord], covered: Period) -> list[RequestRecord]:
    return [record for record in records if covered.start_s <= record.started_at_ns // 10**9 < covered.end_s]


def gaps_of(records: Sequence[RequestRecord]) -> list[int]:
    return [gap * 10_000 for record in records for gap in unpack_gaps(record.gaps)]


def ttfts_of(records: Sequence[RequestRecord]) -> list[int]:
    return [record.ttft_ns for record in records if record.ttft_ns is not None]


def check_everything(answer: Overview, records: Sequence[RequestRecord]) -> None:
    """Compare each number of an overview with its recomputation."""
    assert answer.total == expected_volume(records)
    assert answer.method == "exact"
    assert answer.latency.ttft == expected_quantiles(ttfts_of(records))
    assert answer.latency.gap == expected_quantiles(gaps_of(records))
    groups = {(record.who.tenant, record.model) for record in records}
    assert {(line.tenant, line.model) for line in answer.lines} == groups
    for line in answer.lines:
        own = [record for record in records if (record.who.tenant, record.model) == (line.tenant, line.model)]
        assert line.volume == expected_volume(own)
        assert line.latency.ttft == expected_quantiles(ttfts_of(own))
        assert line.latency.gap == expected_quantiles(gaps_of(own))


@given(st.data(), st.sampled_from(_LENGTHS), st.timedeltas(timedelta(0), timedelta(days=1)))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_number_equals_its_recomputation_at_every_grain(
    reader: StoreClient,
    record: Record,
    free_days: Iterator[datetime],
    data: st.DataObject,
    length: timedelta,
    into: timedelta,
) -> None:
    scope = Scope.last(length, next(free_days) + timedelta(days=22) + into)
    records = data.draw(st.lists(requests(scope.start, length), min_size=1, max_size=25))
    record(records)

    covered = within(records, scope.covered)
    check_everything(overview(reader, scope), covered)
    tenant = records[0].who.tenant
    of_tenant = Scope(scope.start, scope.end, tenant=tenant)
    check_everything(overview(reader, of_tenant), [each for each in covered if each.who.tenant == tenant])
    over_time = series(reader, scope, "model")
    points = [point for group in over_time.groups.values() for point in group]
    assert sum(point.requests for point in points) == len(covered)
    assert sum(point.cost_usd for point in points) == Decimal(sum(each.cost_pico_usd or 0 for each in covered)) / 10**12


def test_no_requests_are_zeros_and_no_latency(reader: StoreClient, free_days: Iterator[datetime]) -> None:
    answer = overview(reader, Scope.last(timedelta(hours=1), next(free_days)))
    assert answer.is_empty
    assert answer.total == Volume()
    assert answer.total.error_rate is None
    assert (answer.latency.ttft, answer.latency.gap, answer.lines) == (None, None, ())


def test_unknown_usage_and_unpriced_cost_are_unknown_not_zero(
    reader: StoreClient, record: Record, free_days: Iterator[datetime]
) -> None:
    start = next(free_days)
    record([request(start), request(start)])
    total = overview(reader, Scope(start, start + timedelta(minutes=1))).total
    assert (total.input_tokens, total.output_tokens, total.cost_usd) == (None, None, None)
    assert (total.unpriced_requests, total.unknown_usage_requests) == (0, 2)


def test_a_known_part_is_shown_with_the_number_of_requests_it_leaves_out(
    reader: StoreClient, record: Record, free_days: Iterator[datetime]
) -> None:
    start = next(free_days)
    known = request(start, usage=Usage(input_text=40, cache_read_text=60, output_text=7), cost_pico_usd=270_000_000)
    record([known, request(start, outcome="cancelled")])
    total = overview(reader, Scope(start, start + timedelta(minutes=1))).total
    assert (total.input_tokens, total.cached_input_tokens, total.output_tokens) == (100, 60, 7)
    assert total.cached_share == 0.6
    assert total.cost_usd == Decimal("0.00027")
    assert (total.unpriced_requests, total.unknown_usage_requests, total.cancelled) == (0, 1, 1)


def test_a_refused_request_is_neither_unpriced_nor_an_error(
    reader: StoreClient, record: Record, free_days: Iterator[datetime]
) -> None:
    start = next(free_days)
    record([request(start, outcome="rejected", status=429), request(start, outcome="error", status=502)])
    total = overview(reader, Scope(start, start + timedelta(minutes=1))).total
    assert (total.requests, total.rejected, total.errors, total.admitted) == (2, 1, 1, 1)
    assert total.error_rate == 1.0
    assert (total.unpriced_requests, total.unknown_usage_requests, total.failed_requests) == (0, 0, 1)
    assert total.cost_usd == 0 and total.input_tokens == 0, "a failure costs nothing, which is known"


def test_an_edge_of_the_range_belongs_to_the_later_minute(
    reader: StoreClient, record: Record, free_days: Iterator[datetime]
) -> None:
    start = next(free_days) + timedelta(hours=5)
    last_before = request(start)
    last_before = request(start, started_at_ns=last_before.started_at_ns - 1)
    record([last_before, request(start), request(start + timedelta(minutes=1))])
    assert overview(reader, Scope(start, start + timedelta(minutes=1))).total.requests == 1


def test_a_batch_sent_twice_counts_once(reader: StoreClient, record: Record, free_days: Iterator[datetime]) -> None:
    start = next(free_days)
    batch = [request(start, cost_pico_usd=5)]
    record(batch)
    record(batch)
    answer = overview(reader, Scope(start, start + timedelta(minutes=1)))
    assert answer.total.requests == 1
    assert answer.total.cost_usd == Decimal("0.000000000005")


@pytest.mark.parametrize("length", [timedelta(hours=5), timedelta(hours=60), timedelta(days=20)])
def test_a_sketch_says_so_and_lies_within_one_per_cent(
    reader: StoreClient,
    record: Record,
    free_days: Iterator[datetime],
    monkeypatch: pytest.MonkeyPatch,
    length: timedelta,
) -> None:
    start = next(free_days) + timedelta(hours=13)
    records = [
        request(
            start + length * part / 50,
            ["acme", "globex"][part % 2],
            ttft_ns=10**7 + part * 3_456_789,
            gaps=pack_gaps([100 + (part * 37 + place * 91) % 900 for place in range(40)]),
        )
        for part in range(50)
    ]
    record(records)
    scope = Scope(start, start + length)
    monkeypatch.setattr(percentiles, "EXACT_SAMPLES", 1_999)
    answer = overview(reader, scope)
    covered = within(records, scope.covered)
    assert answer.method == "sketch"
    for quantiles, values in ((answer.latency.ttft, ttfts_of(covered)), (answer.latency.gap, gaps_of(covered))):
        assert quantiles is not None and quantiles.count == len(values)
        ordered = sorted(values)
        for level, found in ((0.5, quantiles.p50_ns), (0.95, quantiles.p95_ns), (0.99, quantiles.p99_ns)):
            rank = int(level * len(ordered))
            assert ordered[max(rank - 1, 0)] * 0.99 <= found <= ordered[min(rank + 1, len(ordered) - 1)] * 1.01
    monkeypatch.setattr(percentiles, "EXACT_SAMPLES", 2_000)
    assert overview(reader, scope).method == "exact"


def test_tenants_beyond_the_leaders_are_added_up_as_one_group(
    reader: StoreClient, record: Record, free_days: Iterator[datetime]
) -> None:
    start = next(free_days)
    record([request(start, f"tenant-{number:02}", cost_pico_usd=number) for number in range(1, 12)])
    over_time = series(reader, Scope(start, start + timedelta(minutes=2)), "tenant")
    assert set(over_time.groups) == {None, *(f"tenant-{number:02}" for number in range(4, 12))}
    assert [point.requests for point in over_time.groups[None]] == [3, 0]
    assert over_time.groups[None][0].cost_usd == Decimal("0.000000000006")


def test_a_step_that_the_range_covers_in_part_is_marked(reader: StoreClient, free_days: Iterator[datetime]) -> None:
    start = next(free_days)
    over_time = series(reader, Scope(start, start + timedelta(minutes=2, seconds=30)), "tenant")
    assert over_time.steps == tuple(start + timedelta(minutes=minute) for minute in range(3))
    assert over_time.partial == {2}


def test_weeks_begin_on_mondays(reader: StoreClient, record: Record, free_days: Iterator[datetime]) -> None:
    start = next(free_days)
    record([request(start + timedelta(hours=1))])
    over_time = series(reader, Scope(start, start + timedelta(days=200)), "tenant")
    assert over_time.step == timedelta(days=7)
    assert {step.weekday() for step in over_time.steps} == {0}
    assert over_time.groups["acme"][0].requests == 1
