"""Requests by how long they took: exact counts, percentiles within their step, a team's as everybody's."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.latency.histogram import BOUNDS_TENTHS_MS, TENTH_MS_NS, Histogram, step_end
from analytics.latency.over_time import latency_over_time
from analytics.scope import Scope
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.errors import InvalidRequest
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.records import RequestRecord
from tests.analytics.cost.records import request

MS = 10**6


@given(
    st.lists(st.integers(1, BOUNDS_TENTHS_MS[-1] * TENTH_MS_NS), min_size=1, max_size=40),
    st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 1.0]),
)
def test_a_percentile_lies_in_the_step_of_the_true_one(times_ns: list[int], level: float) -> None:
    counts: dict[int, int] = {}
    for time in times_ns:
        low = max(bound for bound in BOUNDS_TENTHS_MS if bound * TENTH_MS_NS < time)
        counts[low] = counts.get(low, 0) + 1
    true = sorted(times_ns)[max(math.ceil(level * len(times_ns)), 1) - 1]
    low = max(bound for bound in BOUNDS_TENTHS_MS if bound * TENTH_MS_NS < true)
    found, high = Histogram(counts).quantile_ns(level), step_end(low)
    assert found is not None and high is not None
    assert low * TENTH_MS_NS <= found <= high * TENTH_MS_NS * (1 + 1e-9)


def test_nothing_has_no_percentile_and_the_last_step_no_end() -> None:
    assert Histogram().quantile_ns(0.5) is None
    assert Histogram({8_000_000: 1}).quantile_ns(0.5) == 8e11
    both = Histogram({10: 1}) + Histogram({10: 2, 20: 3})
    assert both.counts == {10: 3, 20: 3} and both.total == 6
    assert [both.above(limit) for limit in (10, 12, 20, 25)] == [6, 3, 3, 0]


def test_a_team_s_requests_are_counted_as_everybody_s(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    start = (datetime.now(UTC) - timedelta(hours=1)).replace(second=0, microsecond=0)
    tenant = f"tenant-{uuid4()}"

    def made(minute: int, team: str = "red", **fields: object) -> RequestRecord:
        who = Identity(tenant, team)
        return request(start + timedelta(minutes=minute), who=who, **{"ttft_ns": 230 * MS, **fields})

    long = Usage(input_text=40_000, output_text=1)
    red = [
        made(0, gaps=pack_gaps([100, 100, 2_000])),
        made(0, usage=long, duration_ns=9 * 10**9),
        made(1, outcome="cancelled", ttft_ns=None),
        made(1, outcome="error", status=502, usage=Usage(input_text=1), ttft_ns=None),
        made(1, outcome="error", status=400),  # the caller's fault counts for nobody
        made(1, outcome="rejected", status=429, ttft_ns=None),
    ]
    record([*red, made(0, team="blue", ttft_ns=None, outcome="cancelled")])
    scope = Scope(start, start + timedelta(minutes=2), tenant=tenant)
    everybody, team = latency_over_time(reader, scope), latency_over_time(reader, replace(scope, team="red"))
    assert everybody == team  # what blue's lacks is not counted
    assert team.over_time["ttft"][0].counts == {2_000: 2} and team.over_time["ttft"][1].counts == {}
    assert team.whole("inter_token").counts == {150: 1}
    assert team.whole("end_to_end").counts == {8_000: 1, 80_000: 1}
    assert team.by_prompt["very_long"]["ttft"].total == 1 and team.by_prompt["unknown"]["end_to_end"].total == 1
    assert "medium" not in team.by_prompt and not team.is_empty
    assert latency_over_time(reader, replace(scope, tenant=f"none-{uuid4()}")).is_empty


def test_a_range_that_begins_before_what_is_kept_is_refused_with_the_oldest_day(reader: StoreClient) -> None:
    asked_at, oldest, second = datetime.now(UTC), datetime.now(UTC) - timedelta(days=90), timedelta(seconds=1)
    oldest = oldest.replace(hour=0, minute=0, second=0, microsecond=0)
    scopes = [
        Scope(start, start + timedelta(days=2), tenant=f"none-{uuid4()}", asked_at=asked_at)
        for start in (oldest - second, oldest, oldest + second)
    ]
    assert all(latency_over_time(reader, scope).is_empty for scope in scopes[1:])
    with pytest.raises(InvalidRequest, match=f"kept for 90 days, since {oldest:%Y-%m-%d} UTC"):
        latency_over_time(reader, scopes[0])
    assert latency_over_time(reader, replace(scopes[0], team="red")).is_empty, "its requests are kept for longer"
