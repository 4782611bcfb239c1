"""The cost report against a recomputation, in plain Python, from what clients counted: to the pico-dollar."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics.cost.periods import PeriodGrain
from analytics.cost.question import CostQuestion
from analytics.cost.report import CostReport, cost_report
from analytics.cost.sums import CostSum
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.errors import InvalidRequest
from contracts.metering.usage import INPUT_LEAVES, OUTPUT_LEAVES, Usage
from contracts.pricing.price_state import price_state
from contracts.recording.records import RequestRecord
from tests.analytics.cost.records import request, requests

Record = Callable[[Sequence[RequestRecord]], None]
UTC_ZONE = ZoneInfo("UTC")


@pytest.fixture(scope="module")
def free_days() -> Iterator[datetime]:
    """Provide each example a stretch of days that no other test uses, far ahead of the clock, where nothing expires."""
    return (datetime(2050, 1, 1, tzinfo=UTC) + timedelta(days=3 * number) for number in count())


def label(record: RequestRecord, level: str) -> str:
    if level.startswith("tag:"):
        return (record.who.tags or {}).get(level.removeprefix("tag:"), "")
    fields = {"key": record.who.key_id, "model": record.model, "prompt": record.prompt_name}
    return fields[level] if level in fields else str(getattr(record.who, level))


def without_price(record: RequestRecord, side: str) -> int:
    """The tokens in or out that no amount stands for."""
    if price_state(record) == "priced":
        return 0
    leaves = INPUT_LEAVES if side == "input" else OUTPUT_LEAVES
    if price_state(record) == "partly_unpriced":
        leaves = tuple(leaf for leaf in leaves if leaf in record.unpriced_leaves)
    return sum(getattr(record.usage, leaf) or 0 for leaf in leaves)


def counted(record: RequestRecord) -> CostSum:
    """What a client would write down about one request."""
    usage, rejected = record.usage, record.outcome == "rejected"
    state, gpu = price_state(record), record.gpu
    is_estimated = record.count_method == "estimate" and state in ("priced", "partly_unpriced")
    return CostSum(
        requests=1,
        rejected=int(rejected),
        input_tokens=usage.input_tokens or 0,
        cached_input_tokens=usage.cache_read_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        priced_pico_usd=record.cost_pico_usd or 0,
        charged_pico_usd=record.charged_pico_usd or 0,
        unpriced_requests=int(state == "unpriced"),
        unpriced_input_tokens=without_price(record, "input"),
        unpriced_output_tokens=without_price(record, "output"),
        unknown_usage_requests=int(state == "unknown_usage"),
        gpu_ns=0 if gpu is None else gpu.prefill_ns + gpu.decode_ns,
        failed_requests=int(state == "failed"),
        partly_unpriced_requests=int(state == "partly_unpriced"),
        estimated_requests=int(is_estimated),
        estimated_pico_usd=(record.cost_pico_usd or 0) if is_estimated else 0,
    )


def recomputed(records: Sequence[RequestRecord], question: CostQuestion) -> dict[tuple[object, ...], CostSum]:
    sums: defaultdict[tuple[object, ...], CostSum] = defaultdict(CostSum)
    for record in records:
        moment = datetime.fromtimestamp(record.started_at_ns // 10**9, UTC)
        for period in question.periods:
            if period.start <= moment < period.end:
                path = tuple(label(record, level) for level in question.by)
                sums[path, period.start_s] += counted(record)
    return sums


def as_dict(report: CostReport) -> dict[tuple[object, ...], CostSum]:
    return {(line.path, line.period.start_s): line.sums for line in report.lines}


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(
    data=st.data(),
    by=st.sampled_from(
        [
            (),
            ("tenant",),
            ("tenant", "team", "project", "model"),
            ("model", "tenant"),
            ("tenant", "team", "key", "model", "tag:feature"),
            ("prompt", "team"),
        ]
    ),
    grain=st.sampled_from([None, "hour", "day", "month"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]),
)
def test_every_line_is_what_clients_counted_and_every_level_the_sum_of_the_next(
    free_days: Iterator[datetime],
    reader: StoreClient,
    record: Record,
    data: st.DataObject,
    by: tuple[str, ...],
    grain: PeriodGrain | None,
    zone: str,
) -> None:
    start = next(free_days)
    length = data.draw(st.sampled_from([timedelta(hours=5), timedelta(days=1), timedelta(hours=30, minutes=30)]))
    records = data.draw(st.lists(requests(start, length), min_size=1, max_size=25))
    record(records)
    question = CostQuestion(start, start + length, by, grain, ZoneInfo(zone))
    report = cost_report(reader, question)
    assert as_dict(report) == recomputed(records, question)
    assert as_dict(cost_report(reader, question)) == as_dict(report)  # asking changes nothing
    for depth in range(len(by) + 1):
        assert sum((line.sums for line in report.level(depth)), CostSum()) == report.total


def test_a_rollup_and_the_requests_give_the_same(reader: StoreClient, record: Record) -> None:
    start, tenant = datetime(2045, 3, 1, tzinfo=UTC), f"tenant-{uuid4()}"
    who = Identity(tenant, team="red")
    record(
        [
            request(start, who=who, cost_pico_usd=1, usage=Usage(input_text=7, output_text=1)),
            request(start + timedelta(hours=30), who=who, usage=Usage(input_text=5, output_text=2)),
            request(start + timedelta(hours=31), who=who, usage=Usage()),
        ]
    )
    question = CostQuestion(start, start + timedelta(days=2), ("tenant", "team"), "day", tenant=tenant)
    from_days = cost_report(reader, question)
    by_key = CostQuestion(start, start + timedelta(days=2), ("tenant", "team", "key"), "day", tenant=tenant)
    from_requests = cost_report(reader, by_key)
    assert (from_days.source, from_requests.source) == ("requests_day", "requests")
    assert from_days.lines == tuple(from_requests.level(2))
    assert from_days.total.unpriced_tokens == 7 and from_days.total.unknown_usage_requests == 1
    nothing_priced = from_days.lines[1].sums
    assert nothing_priced.cost_usd is None and nothing_priced.unpriced_requests == 1


@pytest.mark.parametrize(
    ("end", "by", "zone", "age_days", "source"),
    [
        ("2026-11-02T00:00", ("team",), "UTC", 300, "requests_day"),
        ("2026-11-02T00:00", ("team",), "Europe/Berlin", 80, "requests_hour"),
        ("2026-11-02T00:00", ("team",), "Europe/Berlin", 91, "requests"),
        ("2026-11-02T00:01", ("team",), "UTC", 6, "requests_minute"),
        ("2026-11-02T00:01", ("team",), "UTC", 7, "requests"),
        ("2026-11-02T00:00:01", ("team",), "UTC", 1, "requests"),
        ("2026-11-02T00:00", ("key",), "UTC", 1, "requests"),
    ],
)
def test_the_coarsest_table_that_is_exact_answers(
    end: str, by: tuple[str, ...], zone: str, age_days: int, source: str
) -> None:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    question = CostQuestion(
        start,
        datetime.fromisoformat(end).replace(tzinfo=UTC),
        by,
        "day",
        ZoneInfo(zone),
        asked_at=start + timedelta(days=age_days),
    )
    assert question.source == source


def test_what_is_no_longer_held_is_refused_and_not_zero(reader: StoreClient, store: object) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    question = CostQuestion(
        start, start + timedelta(days=31), ("key",), asked_at=start + timedelta(days=396), tenant="nobody"
    )
    with pytest.raises(InvalidRequest, match="single requests are kept for 13 months, since 2024-01-02"):
        cost_report(reader, question)
    tenant = f"tenant-{uuid4()}"
    writer: StoreClient = store.client("writer")  # type: ignore[attr-defined]  # the session's store
    writer.command(
        "INSERT INTO retention (tenant, table_name, keep_seconds, deleted_before) "
        "VALUES ({tenant:String}, 'requests', 86400, '2045-06-02 00:00:00')",
        {"tenant": tenant},
    )
    writer.close()
    start = datetime(2045, 6, 1, tzinfo=UTC)
    with pytest.raises(InvalidRequest, match="before 2045-06-02 00:00 UTC have been deleted by a retention rule"):
        cost_report(reader, CostQuestion(start, start + timedelta(days=3), ("key",), tenant=tenant))
    assert cost_report(reader, CostQuestion(start, start + timedelta(days=3), ("team",), tenant=tenant)).lines == ()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"by": ("colour",)}, "'colour' is nothing to break a report down by"),
        ({"by": ("team", "team")}, "names a level twice"),
        ({"by": ("tag:a", "tag:b")}, "use one tag at a time"),
        ({"end": datetime(2026, 11, 1, tzinfo=UTC)}, "choose a later end"),
        ({"end": datetime(2026, 11, 2)}, "needs a time zone"),
        ({"end": datetime(2032, 11, 2, tzinfo=UTC)}, "choose at most 1200"),
    ],
)
def test_a_question_that_cannot_be_is_refused_by_name(fields: dict[str, object], message: str) -> None:
    asked: dict[str, object] = {
        "start": datetime(2026, 11, 1, tzinfo=UTC),
        "end": datetime(2026, 11, 2, tzinfo=UTC),
        **fields,
    }
    with pytest.raises(InvalidRequest, match=message):
        CostQuestion(**asked)  # type: ignore[arg-type]  # a test's choice of fields
