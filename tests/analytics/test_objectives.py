"""Objectives against the store: what is counted is what a reader of the records would count."""

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from analytics.slo.indicators import count_windows
from analytics.slo.report import slo_report
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps, unpack_gaps
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.records import RequestRecord
from contracts.rules.objectives import BURN_WINDOWS, STEPS_TENTHS_MS, Counts, Objective
from contracts.serving.rollouts import PLATFORM_TENANT

Record = Callable[[Sequence[RequestRecord]], None]
MILLISECOND_NS = 1_000_000


def request_at(at: datetime, tenant: str, **changes: Any) -> RequestRecord:
    at_ns = int(at.timestamp() * 1000) * MILLISECOND_NS
    facts: dict[str, Any] = {
        "request_id": uuid7(at_ns).bytes,
        "started_at_ns": at_ns,
        "duration_ns": 10**9,
        "who": Identity(tenant),
        "model": "small",
        "outcome": "ok",
        "status": 200,
        "ttft_ns": 100 * MILLISECOND_NS,
        "usage": Usage(input_text=100, output_text=3),
    }
    return RequestRecord(**{**facts, **changes})


def is_bad(record: RequestRecord, objective: Objective) -> bool | None:
    """Judge one record, written down without regard to how the store counts; `None`: it does not count."""
    limits = {name: int(value * MILLISECOND_NS) for name, value in objective.thresholds_ms.items()}
    failed = record.outcome in ("error", "rejected") and (
        record.status >= 500 or record.error_code == "upstream_rate_limited"
    )
    if record.outcome not in ("ok", "cancelled") and not failed:
        return None
    gaps = sorted(unpack_gaps(record.gaps))
    own_gap_ns = gaps[-(-len(gaps) * 95 // 100) - 1] * 10_000 if gaps else None
    slow = record.ttft_ns is not None and record.ttft_ns > limits.get("ttft", 10**18)
    uneven = own_gap_ns is not None and own_gap_ns > limits.get("inter_token", 10**18)
    late = record.duration_ns > limits.get("end_to_end", 10**18)
    left = record.outcome == "cancelled"
    left_waiting = left and record.ttft_ns is None and record.duration_ns > limits.get("ttft", 10**18)
    if objective.indicator == "availability":
        return None if left else failed
    if objective.indicator == "ttft":
        if left_waiting:
            return True
        return None if failed or record.ttft_ns is None else slow
    if objective.indicator == "inter_token":
        return None if failed or own_gap_ns is None else uneven
    if objective.indicator == "end_to_end":
        return None if failed or (left and not late) else late
    if left:
        return True if left_waiting else None
    return failed or slow or uneven or late


def objectives_for(tenant: str) -> list[Objective]:
    return [
        Objective("up", "availability", Decimal(99), tenant=tenant),
        Objective("first", "ttft", Decimal(95), {"ttft": Decimal(200)}, tenant=tenant),
        Objective("even", "inter_token", Decimal(95), {"inter_token": Decimal("2.5")}, tenant=tenant, model="small"),
        Objective("whole", "end_to_end", Decimal(95), {"end_to_end": Decimal(1000)}, tenant=tenant, window_days=30),
        Objective(
            "good",
            "goodput",
            Decimal(90),
            {"ttft": Decimal(200), "inter_token": Decimal("2.5"), "end_to_end": Decimal(1000)},
            tenant=tenant,
            prompt_class="medium",
        ),
        Objective("routed", "availability", Decimal(99), tenant=tenant, route="chat"),
    ]


def test_counts_are_those_of_the_records_at_every_threshold(reader: StoreClient, record: Record) -> None:
    tenant, now, chance = f"tenant-{uuid4()}", datetime.now(UTC), random.Random(9)
    near = (0, 1, 199, 200, 201, 999, 1000, 1001, 5000)

    def duration_ns() -> int:
        return max(chance.choice(near) * MILLISECOND_NS + chance.choice((-1, 0, 1)), 0)

    def one(number: int) -> RequestRecord:
        outcome = chance.choice(["ok", "ok", "ok", "error", "cancelled", "rejected"])
        return request_at(
            now - timedelta(seconds=number % 3 * 100 + 1),
            tenant,
            model=chance.choice(["small", "large"]),
            route=chance.choice(["chat", ""]),
            outcome=outcome,
            status=200 if outcome == "ok" else chance.choice([400, 429, 499, 500, 503]),
            error_code=chance.choice(["", "upstream_rate_limited"]) if outcome == "error" else "",
            ttft_ns=chance.choice([None, duration_ns()]),
            duration_ns=duration_ns(),
            gaps=pack_gaps([chance.choice((0, 1, 249, 250, 251, 900)) for _ in range(chance.choice((0, 1, 19, 40)))]),
            usage=Usage(input_text=chance.choice([None, 1023, 1024, 8191, 8192])),
        )

    records = [one(number) for number in range(400)]
    assert any(each.outcome == "rejected" and each.status >= 500 for each in records)
    record(records)
    found = count_windows(reader, objectives_for(tenant), [timedelta(hours=1), timedelta(days=28)], now)
    for objective in objectives_for(tenant):
        mine = [
            each
            for each in records
            if objective.model in ("", each.model)
            and objective.route in ("", each.route)
            and (not objective.prompt_class or 1024 <= (each.usage.input_text or 0) < 8192)
        ]
        verdicts = [verdict for each in mine if (verdict := is_bad(each, objective)) is not None]
        assert 0 < sum(verdicts) < len(verdicts), objective.id
        wanted = Counts(len(verdicts), sum(verdicts))
        assert found[objective.id] == {timedelta(hours=1): wanted, timedelta(days=28): wanted}, objective.id


def test_windows_end_now_and_each_begins_where_it_should(reader: StoreClient, record: Record) -> None:
    tenant, now = f"tenant-{uuid4()}", datetime.now(UTC)
    ages = (timedelta(minutes=1), timedelta(minutes=10), timedelta(hours=3), timedelta(hours=20), timedelta(days=2))
    record([request_at(now - age, tenant, outcome="error", status=500) for age in ages])
    (objective,) = objectives_for(tenant)[:1]
    counts = count_windows(reader, [objective], BURN_WINDOWS, now)["up"]
    assert [counts[window].total for window in BURN_WINDOWS] == [1, 2, 2, 2, 3, 4, 5]
    assert [counts[window].bad for window in BURN_WINDOWS] == [1, 2, 2, 2, 3, 4, 5]


def test_a_platform_s_objective_counts_all_tenants_and_a_tenant_s_its_own(reader: StoreClient, record: Record) -> None:
    model, now = f"model-{uuid4()}", datetime.now(UTC)
    for tenant, bad in ((f"a-{model}", 1), (f"b-{model}", 2)):
        made = [request_at(now, tenant, model=model) for _ in range(5)]
        record(made + [request_at(now, tenant, model=model, outcome="error", status=502) for _ in range(bad)])
    platform = Objective("all", "availability", Decimal(99), model=model)
    own = Objective("own", "availability", Decimal(99), model=model, tenant=f"b-{model}")
    found = count_windows(reader, [platform, own], [timedelta(hours=1)], now)
    assert found["all"] == {timedelta(hours=1): Counts(13, 3)}
    assert found["own"] == {timedelta(hours=1): Counts(7, 2)}


def test_a_failing_copy_of_a_rollout_burns_nobodys_budget(reader: StoreClient, record: Record) -> None:
    route, now = f"route-{uuid4()}", datetime.now(UTC)
    failed = {"outcome": "error", "status": 502, "route": route, "arm": "shadow"}
    record([request_at(now, "acme", route=route), request_at(now, PLATFORM_TENANT, **failed)])
    promised = Objective("all", "availability", Decimal(99), route=route)
    assert count_windows(reader, [promised], [timedelta(hours=1)], now)["all"] == {timedelta(hours=1): Counts(1, 0)}


def test_the_report_says_how_promises_stand(reader: StoreClient, record: Record) -> None:
    tenant, now = f"tenant-{uuid4()}", datetime.now(UTC)
    made = [request_at(now, tenant) for _ in range(97)]
    record(made + [request_at(now, tenant, outcome="error", status=500) for _ in range(3)])
    kept = Objective("kept", "availability", Decimal(95), tenant=tenant, window_days=30)
    broken = Objective("broken", "availability", Decimal("99.9"), tenant=tenant)
    unasked = Objective("unasked", "availability", Decimal(99), tenant=f"no-{tenant}")
    rows = {row["id"]: row for row in (each.as_json() for each in slo_report(reader, [kept, broken, unasked], now))}
    assert (rows["kept"]["status"], rows["kept"]["good_percent"]) == ("met", 97.0)
    assert rows["kept"]["budget_remaining_percent"] == 40.0  # 3 of the 5 that may be bad
    assert rows["broken"]["status"] == "broken" and rows["broken"]["budget_remaining_percent"] == -2900.0
    burn = rows["broken"]["burn"]
    assert isinstance(burn, list) and [each["is_burning"] for each in burn] == [True, True, True, True]
    assert (rows["unasked"]["status"], rows["unasked"]["good_percent"]) == ("no_requests", None)


@pytest.mark.parametrize("step", [STEPS_TENTHS_MS[0], 2_000, STEPS_TENTHS_MS[-1]])
def test_a_request_at_a_step_is_in_time_and_a_nanosecond_above_is_not(
    reader: StoreClient, record: Record, step: int
) -> None:
    tenant, now = f"tenant-{uuid4()}", datetime.now(UTC)
    limit_ns = step * 100_000
    record([request_at(now, tenant, ttft_ns=limit_ns + more, duration_ns=10**15) for more in (-1, 0, 1)])
    objective = Objective("at", "ttft", Decimal(50), {"ttft": Decimal(step) / 10}, tenant=tenant)
    assert count_windows(reader, [objective], [timedelta(hours=1)], now)["at"] == {timedelta(hours=1): Counts(3, 1)}
