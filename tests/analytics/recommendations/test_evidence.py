"""What recommendations are made from, as the store has it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

from analytics.recommendations.evidence import read_replica_hours, read_uses
from analytics.recommendations.reading import recommendations
from analytics.scope import Period
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.pricing.prices import NewPrice, price_card
from contracts.recording.names import ENGINE_STEPS
from contracts.recording.records import RequestRecord, StepRecord

NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
DAY = Period(NOW - timedelta(days=1), NOW)
CARDS = [
    price_card(NewPrice("m", "m/1", {"input_text": Decimal(1)}, tiers=[(3_000, {"input_text": Decimal(2)})])),
    price_card(NewPrice("m", "m/eu", {"input_text": Decimal(1)}, region="eu")),
]
SMALL = Usage(input_text=400, cache_read_text=100, output_text=50)
LARGE = Usage(input_text=3_000, cache_read_text=0, output_text=900, output_reasoning=100)


def request(tenant: str, seconds: int, usage: Usage, **facts: Any) -> RequestRecord:
    return RequestRecord(
        request_id=uuid4().bytes,
        started_at_ns=int(DAY.start.timestamp() + seconds) * 10**9,
        duration_ns=1,
        who=Identity(tenant),
        model="m",
        provider="p",
        usage=usage,
        **{"cost_pico_usd": 10**9, "stream": True, **facts},
    )


def test_use_is_told_apart_by_what_could_be_saved(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    tenant = f"tenant-{uuid4()}"
    record(
        [
            request(tenant, 10, SMALL),
            request(tenant, 11, SMALL, stream=False),
            request(tenant, 12, LARGE, stream=False, price_version="1#batch"),
            request(tenant, 20, SMALL, conversation_id="talk"),
            request(tenant, 21, LARGE, conversation_id="talk"),
            request(tenant, 22, LARGE, conversation_id="other"),
            request(tenant, 30, LARGE, cost_pico_usd=None),
        ]
    )
    (use,) = read_uses(reader, DAY, CARDS, tenant)
    assert (use.tenant, use.model, use.provider) == (tenant, "m", "p")
    assert (use.all.requests, use.all.produced) == (6, 3 * 50 + 3 * 1_000)
    assert (use.small.requests, use.small.fresh, use.small.cached) == (3, 1_200, 300)
    assert (use.patient.requests, use.patient.fresh) == (1, 400)
    assert [(one.turns, one.tokens) for one in use.repeated] == [(1, 500)]
    assert recommendations(reader, [], NOW, timedelta(days=1), tenant=tenant) == ()


def test_use_is_told_apart_by_what_a_card_asks(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    tenant = f"tenant-{uuid4()}"
    long = Usage(input_text=3_000, cache_read_text=1, output_text=1)
    record(
        [
            request(tenant, 10, LARGE, region="eu"),
            request(tenant, 11, LARGE, region="us"),
            request(tenant, 12, long, region="eu"),
            request(tenant, 13, LARGE, service_tier="flex"),
            request(tenant, 14, LARGE, price_version="1#batch"),
        ]
    )
    found = {
        (use.region, one.tier, one.input_tokens): one.requests
        for use in read_uses(reader, DAY, CARDS, tenant)
        for one in use.all.slices
    }
    assert found == {("eu", "", 0): 1, ("eu", "", 3_001): 1, ("", "", 0): 1, ("", "flex", 0): 1, ("", "batch", 0): 1}


def test_what_a_cache_was_written_is_input_and_sound_is_left_out(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    tenant = f"tenant-{uuid4()}"
    written = Usage(input_text=100, cache_write_5m=900, cache_write_1h=50, output_text=5)
    record([request(tenant, 10, written), request(tenant, 11, Usage(input_text=1, input_audio=9, output_text=1))])
    (use,) = read_uses(reader, DAY, CARDS, tenant)
    assert (use.all.requests, use.all.fresh, use.small.requests) == (1, 1_050, 0)


def test_replicas_are_as_busy_as_their_steps(store: Any, reader: StoreClient) -> None:
    model = f"model-{uuid4()}"
    at = int((NOW - timedelta(hours=2)).timestamp()) * 10**9
    steps = [
        StepRecord(
            engine=f"{model}-{replica}",
            sequence=number,
            started_at_ns=at + number * 10**11,
            busy_ns=36 * 10**9,
            model=model,
            replica=replica,
            ranks=2,
            waiting=number,
        )
        for replica in "ab"
        for number in range(10)
    ]
    writer = store.client("writer")
    try:
        writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token=model)
    finally:
        writer.close()
    found = [hour for hour in read_replica_hours(reader, DAY) if hour.model == model]
    assert [(hour.replica, hour.busy_share, hour.waiting, hour.ranks) for hour in found] == [
        ("a", 0.1, 9, 2),
        ("b", 0.1, 9, 2),
    ]
