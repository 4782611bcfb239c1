"""Periods begin and end where a calendar on the tenant's wall says so, also when clocks are changed."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigurationError
from contracts.rules.limits import BudgetSpec, Scope
from contracts.rules.periods import Forecast, budget_period, forecast, period_bounds

HOUR_NS = 3600 * 10**9
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "America/Havana", "America/Sao_Paulo", "Asia/Kathmandu",
         "Pacific/Apia", "Africa/Cairo", "Australia/Lord_Howe")  # fmt: skip


def ns(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 10**9


def budget(period="month", **changes) -> BudgetSpec:
    return BudgetSpec("b", Scope("acme", "tenant"), "pico_usd", 1000, period, **changes)


@pytest.mark.parametrize(
    ("period", "start", "end"),
    [
        ("day", "2026-03-11", "2026-03-12"),
        ("week", "2026-03-09", "2026-03-16"),
        ("month", "2026-03-01", "2026-04-01"),
    ],
)
def test_a_period_runs_from_local_midnight_to_local_midnight(period, start, end):
    bounds = period_bounds(period, "Europe/Berlin", ns("2026-03-11 12:00", "Europe/Berlin"))
    assert bounds == (ns(start, "Europe/Berlin"), ns(end, "Europe/Berlin"))


def test_a_total_has_no_end():
    assert period_bounds("total", "UTC", ns("2026-03-11")) == (0, None)


def test_december_is_followed_by_january():
    assert period_bounds("month", "UTC", ns("2026-12-31 23:59")) == (ns("2026-12-01"), ns("2027-01-01"))


def test_the_end_belongs_to_the_next_period():
    end = ns("2026-04-01")
    assert period_bounds("month", "UTC", end - 1)[1] == end
    assert period_bounds("month", "UTC", end)[0] == end


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-10-26", 24)])
def test_a_day_is_as_long_as_its_clocks_say(day, hours):
    start, end = period_bounds("day", "Europe/Berlin", ns(f"{day} 12:00", "Europe/Berlin"))
    assert end is not None
    assert end - start == hours * HOUR_NS


def test_a_day_without_midnight_begins_when_clocks_are_put_forward():
    start, _ = period_bounds("day", "America/Sao_Paulo", ns("2018-11-04 12:00", "America/Sao_Paulo"))
    assert start == ns("2018-11-04 03:00")  # 00:00 to 01:00 did not happen


def test_a_midnight_that_comes_twice_begins_the_day_once():
    first = ns("2026-11-01 04:00")  # Havana, 00:00 daylight time; 00:00 standard time is an hour later
    assert period_bounds("day", "America/Havana", first + HOUR_NS)[0] == first


def test_an_hour_repeated_after_midnight_belongs_to_the_new_day():
    back = ns("2010-11-07 02:31")  # St. John's, 00:01 daylight time -> 23:01 standard time of the day before
    start, end = period_bounds("day", "America/St_Johns", back + 60 * 10**9)
    assert end is not None
    assert start <= back + 60 * 10**9 < end
    assert start == ns("2010-11-07 02:30")


@given(
    at=st.datetimes(datetime(2000, 1, 1), datetime(2037, 1, 1)),
    zone=st.sampled_from(ZONES),
    period=st.sampled_from(["day", "week", "month"]),
)
def test_periods_follow_one_another_without_gap_or_overlap(at, zone, period):
    at_ns = int(at.replace(tzinfo=UTC).timestamp()) * 10**9
    start, end = period_bounds(period, zone, at_ns)
    assert end is not None
    assert start <= at_ns < end
    assert period_bounds(period, zone, start) == (start, end)
    assert period_bounds(period, zone, end - 1) == (start, end)
    assert period_bounds(period, zone, end)[0] == end
    assert period_bounds(period, zone, start - 1)[1] == start


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../etc/passwd", "/etc/localtime", "Europe", "\0"])
def test_an_unknown_time_zone_is_named(name):
    with pytest.raises(ConfigurationError, match="time zone"):
        period_bounds("day", name, 0)


def test_a_budget_begins_and_ends_within_its_calendar_period():
    starts, ends = ns("2026-03-10"), ns("2026-03-20")
    dated = budget(starts_at_ns=starts, ends_at_ns=ends)
    assert budget_period(dated, starts - 1) is None
    assert budget_period(dated, starts) == (starts, ends)
    assert budget_period(dated, ends - 1) == (starts, ends)
    assert budget_period(dated, ends) is None


def test_a_budget_without_dates_has_the_calendar_period():
    assert budget_period(budget(), ns("2026-03-11")) == (ns("2026-03-01"), ns("2026-04-01"))
    assert budget_period(budget("total"), ns("2026-03-11")) == (0, None)
    assert budget_period(budget("total", ends_at_ns=ns("2027-01-01")), ns("2026-03-11")) == (0, ns("2027-01-01"))


def test_a_forecast_carries_the_pace_to_the_end():
    assert forecast(1000, 300, 0, 10, 20) == Forecast(projected=600, exhausted_at_ns=None)
    assert forecast(1000, 600, 0, 10, 20) == Forecast(projected=1200, exhausted_at_ns=17)


def test_what_is_used_up_at_the_end_is_not_used_up_before():
    assert forecast(1000, 500, 0, 10, 20) == Forecast(projected=1000, exhausted_at_ns=None)
    assert forecast(999, 500, 0, 10, 20).exhausted_at_ns is None  # within the last nanosecond
    assert forecast(950, 500, 0, 10, 20).exhausted_at_ns == 19


def test_what_is_used_up_now_is_used_up_now():
    assert forecast(1000, 1000, 0, 10, 20).exhausted_at_ns == 10
    assert forecast(1000, 999, 0, 10, 20).exhausted_at_ns == 11


def test_nothing_used_projects_nothing():
    assert forecast(1000, 0, 0, 10, 20) == Forecast(projected=0, exhausted_at_ns=None)


def test_without_an_end_only_the_exhaustion_is_told():
    assert forecast(1000, 500, 0, 10, None) == Forecast(projected=None, exhausted_at_ns=20)


def test_at_the_first_moment_there_is_no_pace_yet():
    assert forecast(1000, 500, 10, 10, 20) == Forecast(projected=500, exhausted_at_ns=None)
