"""Why a token was slow, with parts that sum to its time, and what caches saved, at the prices that were paid."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from analytics.attribution.savings import cache_savings
from analytics.attribution.slow_token import SeenStep, TokenTime, steps_around, token_time
from analytics.cost.question import CostQuestion
from analytics.prices.usage_groups import usage_groups
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.pricing.prices import NewPrice, PriceBook, price_card
from contracts.recording.names import ENGINE_STEPS
from contracts.recording.records import RequestRecord, StepRecord
from tests.analytics.cost.records import request

MS = 10**6


def step(at: int, busy: int, *, gap: int = 0, own: int | None = None, prefill: int = 0, again: int = 0) -> SeenStep:
    return SeenStep(at, busy, gap, "host", "step", own is not None, again, own or 0, prefill)


def test_each_cause_of_a_token_s_time_is_told_from_the_others() -> None:
    steps = [
        step(10, 20, prefill=20),  # before it was scheduled
        step(30, 10, own=10),
        step(45, 10, gap=5, own=2, prefill=5),
        step(55, 10, prefill=10),  # out of its turn, and what it had is computed again
        step(65, 15, own=15, again=4),
    ]
    assert token_time(steps, 0, 90, waited_ns=6) == TokenTime(
        own_ns=27, co_prefill_ns=5, co_decode_ns=3, preemption_ns=10, host_ns=5, queue_ns=26, outside_ns=14
    )
    assert token_time(steps, 50, 60).total_ns == 10
    assert token_time([], 0, 90) == TokenTime(outside_ns=90)


@given(
    st.lists(st.tuples(*[st.integers(0, 40)] * 4, st.booleans()), max_size=12),
    st.integers(0, 300),
    st.integers(0, 300),
    st.integers(0, 500),
)
def test_the_causes_sum_to_the_whole_time(
    drawn: list[tuple[int, int, int, int, bool]], begin: int, length: int, waited: int
) -> None:
    steps, at = [], 0
    for gap, busy, own, prefill, has_it in drawn:
        own, prefill = min(own, busy), min(prefill, max(busy - own, 0))
        steps.append(step(at + gap, busy, gap=gap, own=own if has_it else None, prefill=prefill))
        at += gap + busy
    assert token_time(steps, begin, begin + length, waited).total_ns == length


def test_the_time_before_a_token_of_a_stored_request_is_explained(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None], store: Any
) -> None:
    identifier, other, tenant = uuid4(), uuid4(), f"tenant-{uuid4()}"
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
    started = int(start.timestamp()) * 10**9
    made = request(
        start,
        request_id=identifier.bytes,
        who=Identity(tenant),
        ttft_ns=20 * MS,
        gaps=pack_gaps([1_000, 3_000]),  # 10 and 30 ms
    )
    record([made])
    writer: StoreClient = store.client("writer")

    def of(sequence: int, at_ms: int, busy_ms: int, ids: list[UUID], ns: list[int], phases: list[int]) -> StepRecord:
        return StepRecord(
            engine=f"engine-{identifier}",
            sequence=sequence,
            started_at_ns=started + at_ms * MS,
            busy_ns=busy_ms * MS,
            method="m",
            request_ids=[one.bytes for one in ids],
            tenants=["t"] * len(ids),
            scheduled=[1] * len(ids),
            phases=phases,
            gpu_ns=ns,
        )

    recorded = [
        of(1, 5, 15, [identifier], [15 * MS], [0]),
        of(2, 20, 10, [identifier], [10 * MS], [1]),
        of(3, 30, 30, [identifier, other], [3 * MS, 27 * MS], [1, 0]),
    ]
    writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, recorded), deduplication_token=str(uuid4()))
    writer.close()
    steps = steps_around(reader, identifier, started, started + 60 * MS)
    slowest = token_time(steps, started + 30 * MS, started + 60 * MS)
    assert slowest == TokenTime(own_ns=3 * MS, co_prefill_ns=27 * MS)
    assert token_time(steps, started, started + 20 * MS) == TokenTime(own_ns=15 * MS, outside_ns=5 * MS)


def test_savings_are_the_reader_s_at_the_prices_of_its_card(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    tenant, day = f"tenant-{uuid4()}", datetime(2048, 1, 1, tzinfo=UTC)
    card = price_card(
        NewPrice(
            "llama",
            "llama/1",
            {
                "input_text": Decimal(3),
                "cache_read_text": Decimal("0.3"),
                "cache_write_5m": Decimal("3.75"),
                "output_text": Decimal(15),
            },
        )
    )
    record(
        [
            request(
                day, who=Identity(tenant, team="red"), usage=Usage(input_text=0, cache_write_5m=100, output_text=1)
            ),
            request(
                day, who=Identity(tenant, team="blue"), usage=Usage(input_text=5, cache_read_text=100, output_text=1)
            ),
            request(
                day,
                who=Identity(tenant, team="blue"),
                model="other",
                usage=Usage(input_text=5, cache_read_text=7, output_text=1),
            ),
        ]
    )
    question = CostQuestion(day, day + timedelta(days=1), ("team",), tenant=tenant)
    found = cache_savings(usage_groups(reader, question, [card]), PriceBook([card]), {"other": 10.0})
    assert [(one.team, one.model, one.net_pico_usd) for one in found] == [
        ("blue", "llama", 270_000_000),
        ("blue", "other", 0),
        ("red", "llama", -75_000_000),
    ]
    assert (found[1].unpriced_tokens, found[1].saved_gpu_ns, found[0].saved_gpu_ns) == (7, 70, None)
