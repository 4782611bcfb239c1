"""Costs as a tree: every level's parts are the place's whole, and every view of a place says the same."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import cast
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.cost.comparison import compare_costs, cost_drivers
from analytics.cost.drill import (
    LEVELS,
    CostLevel,
    CostPlace,
    CostRange,
    completed,
    cost_breakdown,
    cost_range,
    summed_breakdown,
    tag_names,
)
from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.cost.spending_now import spending_now
from analytics.cost.sums import CostSum
from analytics.cost.unit_costs import unit_costs
from analytics.forecast.outlook import outlook_task
from analytics.forecast.spend import forecast_spend
from analytics.query_time import QueryTime
from analytics.scope import Period, Scope
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.records import RequestRecord
from tests.analytics.cost.records import request

UTC_ZONE = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")
USD = 10**12
NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=3)
Record = Callable[[Sequence[RequestRecord]], None]


def used(tenant: str, at: datetime, cost: int | None, **fields: object) -> RequestRecord:
    who = {name: fields.pop(name) for name in ("team", "project", "key_id", "tags") if name in fields}
    usage = Usage(input_text=900, output_text=100)
    return request(at, who=Identity(tenant, **who), usage=usage, cost_pico_usd=cost, **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tenant(record: Record) -> str:
    """A tenant with two teams, two features, two keys and two models on one day, and less on the day before."""
    name = f"drill-{uuid4().hex[:8]}"
    record(
        [
            used(name, NOON, 5 * USD, team="red", project="search", key_id="key_1", tags={"feature": "chat"}),
            used(name, NOON, 3 * USD, team="red", project="search", key_id="key_2", tags={"feature": "sum"}),
            used(name, NOON, 2 * USD, team="blue", key_id="key_2", tags={"feature": "chat"}, model="qwen"),
            used(name, NOON, None, team="blue", key_id="key_1", model="qwen"),
            used(name, NOON - timedelta(days=1), 4 * USD, team="red", project="search", key_id="key_1"),
        ]
    )
    return name


def day(at: datetime = NOON) -> CostRange:
    start = at.replace(hour=0)
    return CostRange(Period(start, start + timedelta(days=1)), UTC_ZONE, datetime.now(UTC))


def test_at_every_level_the_parts_are_the_place_s_whole(reader: StoreClient, tenant: str) -> None:
    place = CostPlace(tenant=tenant)
    whole = cost_breakdown(reader, place, day(), None).total
    assert (whole.priced_pico_usd, whole.unpriced_requests, whole.unpriced_tokens) == (10 * USD, 1, 1_000)
    for level in place.open_levels:
        answer = cost_breakdown(reader, place, day(), level)
        assert answer.total == whole
        assert sum(sums.priced_pico_usd for _, sums in answer.lines) == 10 * USD
        quick = cost_breakdown(reader, place, day(), level, True)
        assert quick.total.priced_pico_usd == whole.priced_pico_usd
        assert quick.total.unpriced_tokens == 1_000
        assert completed(quick, answer) == answer
        assert answer.source == ("requests" if level in ("tag", "user", "key", "provider") else "requests_day")


def test_sums_tell_what_unpriced_requests_used_beside_priced_ones(reader: StoreClient, record: Record) -> None:
    name = f"drill-{uuid4().hex[:8]}"
    record([used(name, NOON, cost, model=model) for model, cost in (("a", None), ("a", None), ("b", None), ("b", USD))])
    place, levels = CostPlace(tenant=name), cast(tuple[CostLevel | None, ...], ("model", "team", None))
    summed = {level: summed_breakdown(reader, place, day(), level) for level in levels}
    models = {model: sums.unpriced_tokens for model, sums in summed["model"].lines}
    assert models == {"a": 2_000, "b": 1_000}
    assert all(answer.total.unpriced_tokens == 3_000 for answer in summed.values())
    for level in levels:
        whole = cost_breakdown(reader, place, day(), level)
        assert whole.total.unpriced_tokens == 3_000 and completed(summed[level], whole) == whole
    alone = summed_breakdown(reader, replace(place, model="a"), day(), "team")
    assert alone == cost_breakdown(reader, replace(place, model="a"), day(), "team")
    assert alone.total.unpriced_tokens == 2_000


def test_all_tenants_recent_hours_are_what_their_requests_say(reader: StoreClient, record: Record) -> None:
    model, now = f"model-{uuid4().hex[:8]}", datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    record([used(f"drill-{n}", now - timedelta(hours=hours), USD, model=model) for n, hours in enumerate((1, 5, 30))])
    for hours, found in ((5, 2), (4, 1), (30, 3), (29, 2)):
        within = CostRange(Period(now - timedelta(hours=hours), now), UTC_ZONE, now)
        answer = cost_breakdown(reader, CostPlace(model=model), within, "tenant")
        assert (len(answer.lines), answer.total.priced_pico_usd) == (found, found * USD)
        assert answer.total == cost_breakdown(reader, CostPlace(model=model), within, "key").total


def test_each_step_down_is_the_line_it_was_opened_from(reader: StoreClient, tenant: str) -> None:
    place = CostPlace(tenant=tenant)
    steps: tuple[tuple[CostLevel, str], ...] = (
        ("team", "red"),
        ("project", "search"),
        ("tag", "chat"),
        ("user", ""),
        ("key", "key_1"),
        ("provider", ""),
        ("model", "llama"),
    )
    for level, name in steps:
        lines = dict(cost_breakdown(reader, place, day(), level).lines)
        place = replace(place, **{level: name})
        assert cost_breakdown(reader, place, day(), None).total == lines[name]
    assert place.open_levels == ()
    assert [level for level, _ in place.chosen] == list(LEVELS)


def test_the_dearest_part_comes_first_and_what_has_no_name_is_a_part_too(reader: StoreClient, tenant: str) -> None:
    lines = cost_breakdown(reader, CostPlace(tenant=tenant), day(), "tag").lines
    assert [(name, sums.priced_pico_usd) for name, sums in lines] == [("chat", 7 * USD), ("sum", 3 * USD), ("", 0)]
    nameless = cost_breakdown(reader, CostPlace(tenant=tenant, tag=""), day(), "model").lines
    assert [(name, sums.unpriced_requests) for name, sums in nameless] == [("qwen", 1)]


def test_any_tag_breaks_costs_down_and_is_found_by_its_name(reader: StoreClient, record: Record) -> None:
    name = f"drill-{uuid4().hex[:8]}"
    tags: tuple[dict[str, str], ...] = ({"cost-center": "4711", "stage": "live"}, {"cost-center": "4712"}, {})
    record([used(name, NOON, cost * USD, tags=each) for cost, each in enumerate(tags, start=1)])
    place = CostPlace(tenant=name, tag_name="cost-center")
    lines = cost_breakdown(reader, place, day(), "tag").lines
    assert [(value, sums.priced_pico_usd) for value, sums in lines] == [("", 3 * USD), ("4712", 2 * USD), ("4711", USD)]
    assert cost_breakdown(reader, replace(place, tag="4711"), day(), "user").total.priced_pico_usd == USD
    assert tag_names(reader, place, day()) == ("cost-center", "stage")
    assert tag_names(reader, place, day(NOON - timedelta(days=1))) == ()


def test_a_comparison_s_drivers_are_its_change(reader: StoreClient, tenant: str) -> None:
    before = day(NOON - timedelta(days=1)).period
    answer = compare_costs(reader, CostPlace(tenant=tenant), day(), before, "team")
    assert [(line.label, line.change_usd, line.change_share) for line in answer.lines] == [
        ("red", Decimal(4), 1.0),
        ("blue", Decimal(2), None),
    ]
    assert answer.total.change_usd == Decimal(6)
    drivers = cost_drivers(reader, CostPlace(tenant=tenant), day(), before)
    assert sum(drivers.parts.values()) == drivers.total == 6 * USD
    by_key = compare_costs(reader, CostPlace(tenant=tenant), day(), before, "key")
    assert by_key.total.change_usd == answer.total.change_usd
    whole = compare_costs(reader, CostPlace(tenant=tenant), day(), before, None)
    assert (whole.total.change_usd, whole.lines) == (Decimal(6), ())


def test_today_yesterday_and_the_month_are_what_a_report_of_them_says(reader: StoreClient, tenant: str) -> None:
    for zone in (UTC_ZONE, BERLIN):
        found = spending_now(reader, QueryTime(NOON + timedelta(hours=5)), zone, tenant)
        assert (found.today.priced_pico_usd, found.yesterday.priced_pico_usd) == (10 * USD, 4 * USD)
        report = cost_report(reader, CostQuestion(found.month.start, found.day.end, tenant=tenant))
        assert found.month_to_date == report.total
    first = datetime(NOON.year, NOON.month, 1, 0, 30, tzinfo=UTC)
    assert spending_now(reader, QueryTime(first), UTC_ZONE, tenant).yesterday == CostSum()


def test_one_tenant_s_outlook_is_its_forecast_and_a_team_has_one_of_its_own(reader: StoreClient, tenant: str) -> None:
    asked = QueryTime(NOON + timedelta(hours=5))
    task = outlook_task(reader, asked, tenant)
    assert task is not None
    assert (task.forecast(),) == forecast_spend(reader, asked.moment, tenant=tenant)
    assert task.history.unpriced == 1
    red = outlook_task(reader, asked, tenant, "red")
    assert red is not None and red.history.pico_usd == (4 * USD, 8 * USD)
    together = outlook_task(reader, asked)
    assert together is not None and sum(together.history.pico_usd) >= 14 * USD
    assert outlook_task(reader, asked, "nobody") is None


@pytest.mark.parametrize(
    ("start", "hours", "zone", "first"),
    [
        (datetime(2026, 10, 31, 23, tzinfo=UTC), 500, BERLIN, datetime(2026, 10, 31, 23, tzinfo=UTC)),
        (datetime(2026, 11, 1, 0, 20, tzinfo=UTC), 500, UTC_ZONE, datetime(2026, 11, 1, tzinfo=UTC)),
        (datetime(2026, 11, 20, 9, 20, tzinfo=UTC), 2, UTC_ZONE, datetime(2026, 11, 20, 9, 20, tzinfo=UTC)),
    ],
)
def test_a_month_of_another_zone_begins_at_its_own_midnight(
    start: datetime, hours: int, zone: ZoneInfo, first: datetime
) -> None:
    end = start + timedelta(hours=hours, minutes=7)
    found = cost_range(Scope(start, end, asked_at=end), zone)
    assert found.period.start == first
    assert end <= found.period.end < end + timedelta(days=1)


@given(
    st.integers(0, 10**15), st.integers(0, 50), st.integers(0, 50), st.integers(0, 10**6), st.none() | st.integers(0, 9)
)
def test_units_times_their_cost_are_the_cost(
    cost: int, requests: int, unpriced: int, tokens: int, unpriced_tokens: int | None
) -> None:
    sums = CostSum(
        requests=requests + unpriced,
        input_tokens=tokens + (unpriced_tokens or 0 if unpriced else 0),
        priced_pico_usd=cost,
        unpriced_requests=unpriced,
        unpriced_input_tokens=unpriced_tokens if unpriced else 0,
    )
    each = unit_costs(sums)
    if not requests:
        assert each.per_request is None
    else:
        assert each.per_request is not None
        assert abs(each.per_request * requests - Decimal(cost).scaleb(-12)) <= Decimal(requests).scaleb(-12)
    assert (each.per_mtok is None) == (not tokens or (bool(unpriced) and unpriced_tokens is None))
