"""What a run came to: its own requests alone, complete answers told from the others, unknown cost told from none."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

from analytics.runs import RunTotals, run_totals
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.records import RequestRecord

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
HOUR = Period(NOON, NOON + timedelta(hours=1))


def request(run_id: str, tenant: str, seconds: int = 0, **fields: object) -> RequestRecord:
    facts: dict[str, object] = {
        "request_id": uuid4().bytes,
        "started_at_ns": (int(NOON.timestamp()) + seconds) * 10**9,
        "duration_ns": 1,
        "who": Identity(tenant=tenant),
        "run_id": run_id,
        "usage": Usage(input_text=90, cache_read_text=10, output_text=4, output_reasoning=3),
        "cost_pico_usd": 2_000_000,
        "outcome": "ok",
    }
    return RequestRecord(**{**facts, **fields})  # type: ignore[arg-type]  # a test's choice of fields


def test_a_run_s_sums_are_those_of_its_requests_in_the_period(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    run, tenant, other = f"run-{uuid4()}", f"tenant-{uuid4()}", f"tenant-{uuid4()}"
    record(
        [
            request(run, tenant),
            request(run, other, seconds=3599),
            request(run, tenant, seconds=3600),  # the period's end is not in it
            request(run, tenant, seconds=-1),
            request(f"{run}-measurement", tenant),
            request(run, tenant, outcome="cancelled", usage=Usage(input_text=5, output_text=1), cost_pico_usd=None),
            request(run, tenant, outcome="rejected", usage=Usage(), cost_pico_usd=None),
        ]
    )
    assert run_totals(reader, run, HOUR) == RunTotals(
        requests=4,
        ok=2,
        unpriced=1,  # the cancelled one; what was rejected costs nothing
        input_tokens=205,
        cached_input_tokens=20,
        output_tokens=15,
        ok_output_tokens=14,
        cost_usd=Decimal("0.000004000000"),
    )
    assert run_totals(reader, run, HOUR, tenant=other).requests == 1


def test_a_run_nobody_made_is_nothing(reader: StoreClient) -> None:
    totals = run_totals(reader, f"run-{uuid4()}", HOUR)
    assert replace(totals, cost_usd=Decimal(0)) == RunTotals(0, 0, 0, 0, 0, 0, 0, Decimal(0))
