"""GPU time by tenant and team, over time: what the requests of a range were charged with, whichever sums it is from."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.gpu.use import gpu_use
from analytics.scope import Scope
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.recording.records import GpuShare, RequestRecord
from tests.analytics.cost.records import request

START = datetime(2058, 3, 1, tzinfo=UTC)
DAYS = 20
LENGTHS = (timedelta(minutes=40), timedelta(hours=20), timedelta(days=1), timedelta(days=5), timedelta(days=19))


def made(number: int) -> RequestRecord:
    """One of three hundred requests of three tenants over twenty days; those of one model have no GPU time."""
    return request(
        START + timedelta(seconds=number * 5_743.31),
        who=Identity(f"tenant-{number % 3}", ("", "team-1")[number % 2]),
        model=f"model-{number % 4}" if number % 7 else "hosted",
        gpu=GpuShare(prefill_ns=number, decode_ns=2 * number, wasted_ns=number % 5) if number % 7 else None,
    )


ROWS = [made(number) for number in range(1, 300)]


@pytest.fixture(scope="module", autouse=True)
def _stored(record: Any) -> None:
    record(ROWS)


@settings(max_examples=25)
@given(
    end_s=st.integers(0, DAYS * 86_400),
    length=st.sampled_from(LENGTHS),
    age=st.sampled_from([timedelta(0), timedelta(days=6), timedelta(days=10), timedelta(days=95)]),
    of=st.sampled_from([{}, {"model": "model-1"}, {"tenant": "tenant-1"}, {"tenant": "tenant-1", "team": "team-1"}]),
)
def test_use_is_what_the_requests_were_charged_with(
    reader: StoreClient, end_s: int, length: timedelta, age: timedelta, of: Any
) -> None:
    end = START + timedelta(seconds=end_s)
    scope = Scope(end - length, end, asked_at=end + age, **of)
    use = gpu_use(reader, scope)
    sums: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * len(use.steps))
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    for row in ROWS:
        began = datetime.fromtimestamp(row.started_at_ns / 1e9, UTC)
        payer = (row.who.tenant, row.who.team)
        asked_for = {"tenant": payer[0], "team": payer[1], "model": row.model}
        if row.gpu is None or not scope.covered.start <= began < scope.covered.end:
            continue
        if any(asked_for[name] != value for name, value in of.items()):
            continue
        place = max(at for at, step in enumerate(use.steps) if step <= began)
        sums[payer][place] += row.gpu.prefill_ns + row.gpu.decode_ns + row.gpu.wasted_ns
        counts[payer] += 1
    assert use.teams == {payer: tuple(by_step) for payer, by_step in sums.items()}
    assert use.requests == counts and use.total_ns == sum(map(sum, sums.values()))
    assert [start.timestamp() for start in use.steps] == list(scope.step_starts)
