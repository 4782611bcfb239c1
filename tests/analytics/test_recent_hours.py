"""Exact percentiles over all tenants come from the requests in the order of time, while the store keeps these."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from analytics.percentiles import latencies
from analytics.scope import RECENT_KEPT, Scope
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.recording.records import RequestRecord

NOW = datetime.now(UTC).replace(second=0, microsecond=0)
HOUR = timedelta(hours=1)


def test_all_tenants_and_one_are_told_the_same(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    tenant, model = f"tenant-{uuid4()}", f"model-{uuid4()}"
    start_ns = time.time_ns() - 2 * 3600 * 10**9
    record(
        [
            RequestRecord(
                request_id=uuid4().bytes,
                started_at_ns=start_ns + index * 10**9,
                duration_ns=1,
                who=Identity(tenant),
                model=model,
                ttft_ns=1000 + 7 * index,
                gaps=pack_gaps([index * 13 % 97, 5 + index]),
            )
            for index in range(120)
        ]
    )
    everyone = Scope(NOW - 4 * HOUR, NOW, model=model)
    alone = Scope(NOW - 4 * HOUR, NOW, tenant, model)
    assert everyone.is_recent
    found = [latencies(reader, scope, ttft_samples=120, gap_samples=240) for scope in (everyone, alone)]
    assert found[0] == found[1]
    assert found[0].method == "exact" and found[0].total.gap is not None and found[0].total.gap.count == 240


@pytest.mark.parametrize(("older_by_hours", "expected"), [(-1, True), (0, True), (1, False)])
def test_what_is_recent_ends_two_hours_before_the_store_forgets(older_by_hours: int, expected: bool) -> None:
    start = NOW - RECENT_KEPT + 2 * HOUR - older_by_hours * HOUR
    assert Scope(start, start + HOUR, asked_at=NOW).is_recent is expected
