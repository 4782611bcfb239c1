"""Periods of a calendar: none overlaps, none is missing, and a clock that is set is no reason for either."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.cost.periods import GRAINS, PeriodGrain, moment, month_of, split, time_zone
from analytics.scope import Period
from contracts.errors import InvalidRequest

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-10-26", 24)], ids=["spring", "autumn", "other"]
)
def test_a_day_has_as_many_hours_as_its_clock_goes_through(day: str, hours: int) -> None:
    start = moment(day, BERLIN, "from")
    (whole, *_) = split(Period(start, start + timedelta(days=2)), "day", BERLIN)
    assert whole.end - whole.start == timedelta(hours=hours)
    assert len(split(whole, "hour", BERLIN)) == hours


def test_a_month_begins_at_its_own_midnight() -> None:
    october = month_of(2026, 10, BERLIN)
    assert october == Period(datetime(2026, 9, 30, 22, tzinfo=UTC), datetime(2026, 10, 31, 23, tzinfo=UTC))


def test_a_day_whose_midnight_does_not_exist_begins_when_the_clock_has_skipped_it() -> None:
    santiago = ZoneInfo("America/Santiago")  # 6 September 2026: 23:59:59, then 01:00
    start = datetime(2026, 9, 5, 12, tzinfo=UTC)
    first, second = split(Period(start, start + timedelta(hours=24)), "day", santiago)
    assert second.start == datetime(2026, 9, 6, 4, tzinfo=UTC)
    assert second.start.astimezone(santiago).hour == 1


@given(
    st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)),
    st.timedeltas(timedelta(seconds=1), timedelta(days=60)),
    st.sampled_from(GRAINS),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe"]),
)
def test_periods_laid_end_to_end_are_the_whole(
    start: datetime, length: timedelta, grain: PeriodGrain, name: str
) -> None:
    whole = Period(start.replace(tzinfo=UTC), start.replace(tzinfo=UTC) + length)
    periods = split(whole, grain, ZoneInfo(name))
    assert periods[0].start == whole.start and periods[-1].end == whole.end
    assert all(one.start < one.end for one in periods)
    assert all(one.end == other.start for one, other in zip(periods, periods[1:], strict=False))


def test_what_is_no_zone_time_or_month_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="'Mars/Base' is not a time zone"):
        time_zone("Mars/Base")
    with pytest.raises(InvalidRequest, match="'noon' is not a time"):
        moment("noon", BERLIN, "from")
    with pytest.raises(InvalidRequest, match="'0001-01-01' is not a time"):
        moment("0001-01-01", BERLIN, "from")
    for year, month in ((2026, 13), (9999, 12), (10**30, 1)):
        with pytest.raises(InvalidRequest, match=f"{year}-{month} is not a month"):
            month_of(year, month, BERLIN)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(InvalidRequest, match="more than 2400 periods of one hour"):
        split(Period(start, start + timedelta(days=200)), "hour", BERLIN)
