"""What may be asked about, and which whole minutes, hours or days an answer covers."""

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import migrations
from analytics.scope import HOURS_KEPT, MAX_BARS, MAX_RANGE, MINUTES_KEPT, Scope
from contracts.errors import InvalidRequest

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
moments = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))
lengths = st.timedeltas(timedelta(seconds=1), MAX_RANGE)


def test_reversed_dates_are_refused_naming_both() -> None:
    with pytest.raises(InvalidRequest, match=r"ends \(2026-11-01 12:00 UTC\) before it begins \(2026-11-02 12:00"):
        Scope(NOON, NOON - timedelta(days=1))


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="begins and ends at 2026-11-02 12:00 UTC"):
        Scope(NOON, NOON)


def test_a_range_of_400_days_is_the_longest() -> None:
    assert Scope(NOON - timedelta(days=400), NOON).grain == "day"
    with pytest.raises(InvalidRequest, match="401 days long; choose at most 400 days"):
        Scope(NOON - timedelta(days=401), NOON)


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="start .* needs a time zone"):
        Scope(datetime(2026, 11, 1), NOON)


@pytest.mark.parametrize("year", [1900, 2200])
def test_times_the_store_cannot_hold_are_refused(year: int) -> None:
    with pytest.raises(InvalidRequest, match="between 1970 and 2105"):
        Scope(datetime(year, 1, 1, tzinfo=UTC), datetime(year, 1, 2, tzinfo=UTC))


def test_other_zones_become_utc() -> None:
    berlin = timezone(timedelta(hours=1))
    scope = Scope(datetime(2026, 11, 2, 13, 0, tzinfo=berlin), datetime(2026, 11, 2, 14, 0, tzinfo=berlin))
    assert (scope.start, scope.end) == (NOON, NOON + timedelta(hours=1))
    assert scope.start.tzinfo is UTC


@pytest.mark.parametrize(
    ("length", "grain"),
    [
        (timedelta(hours=6), "minute"),
        (timedelta(hours=6, seconds=1), "hour"),
        (timedelta(days=14), "hour"),
        (timedelta(days=14, seconds=1), "day"),
    ],
)
def test_the_grain_changes_just_above_its_threshold(length: timedelta, grain: str) -> None:
    assert Scope.last(length, NOON).grain == grain


@pytest.mark.parametrize(
    ("length", "age", "grain"),
    [
        (timedelta(hours=1), timedelta(days=6), "minute"),
        (timedelta(hours=1), timedelta(days=7), "hour"),
        (timedelta(hours=1), timedelta(days=89), "hour"),
        (timedelta(hours=1), timedelta(days=90), "day"),
        (timedelta(days=14), timedelta(days=90), "day"),
    ],
)
def test_a_range_whose_fine_rollup_has_expired_is_answered_from_a_coarser_one(
    length: timedelta, age: timedelta, grain: str
) -> None:
    start = NOON - age
    assert Scope(start, start + length, asked_at=NOON).grain == grain


def test_rollups_are_kept_as_long_as_is_assumed_here() -> None:
    migration = (Path(migrations.__file__).parent / "clickhouse" / "0005_rollups.sql").read_text()
    table = r"CREATE TABLE IF NOT EXISTS requests_(\w+).*?\n(?:TTL bucket \+ INTERVAL (\d+) DAY\n)?SETTINGS"
    kept = re.findall(table, migration, re.DOTALL)
    assert kept == [("minute", str(MINUTES_KEPT.days)), ("hour", str(HOURS_KEPT.days)), ("day", "")]


@given(moments, lengths)
def test_what_is_covered_is_the_range_rounded_outward_by_less_than_a_grain(start: datetime, length: timedelta) -> None:
    scope = Scope(start, start + length, asked_at=start + length)
    grain = {"minute": 60, "hour": 3_600, "day": 86_400}[scope.grain]
    covered = scope.covered
    assert covered.start <= scope.start < covered.start + timedelta(seconds=grain)
    assert covered.end - timedelta(seconds=grain) < scope.end <= covered.end
    assert covered.start_s % grain == 0 and covered.end_s % grain == 0


WELL_KNOWN = st.sampled_from([timedelta(minutes=15), timedelta(hours=6), timedelta(days=14), MAX_RANGE])


@given(moments, WELL_KNOWN | lengths, st.timedeltas(timedelta(0), timedelta(days=100)))
def test_a_settled_range_covers_the_same_by_the_same_sums(start: datetime, length: timedelta, age: timedelta) -> None:
    scope = Scope(start, start + length, "acme", asked_at=start + length + age)
    settled = scope.settled
    assert (settled.covered, settled.grain, settled.tenant) == (scope.covered, scope.grain, "acme")
    assert settled.settled == settled


@pytest.mark.parametrize("length", [timedelta(hours=6), timedelta(days=14), MAX_RANGE])
def test_ranges_of_the_same_minutes_hours_or_days_settle_alike(length: timedelta) -> None:
    now = NOON + timedelta(minutes=30, seconds=7)
    first, later = (Scope(end - length, end, asked_at=end) for end in (now, now + timedelta(seconds=5)))
    assert first != later and first.settled == later.settled


@given(moments, lengths)
def test_whole_days_lie_within_what_is_covered(start: datetime, length: timedelta) -> None:
    scope = Scope(start, start + length, asked_at=start + length)
    covered, days = scope.covered, scope.whole_days
    assert days.start_s % 86_400 == 0 and days.end_s % 86_400 == 0
    assert days.start == days.end or covered.start <= days.start < days.end <= covered.end
    assert days.start_s - covered.start_s < 86_400
    assert days.start == days.end or covered.end_s - days.end_s < 86_400


@given(moments, lengths)
def test_a_chart_has_few_bars_and_none_finer_than_the_rollup(start: datetime, length: timedelta) -> None:
    scope = Scope(start, start + length, asked_at=start + length)
    grain = {"minute": 60, "hour": 3_600, "day": 86_400}[scope.grain]
    assert scope.step_seconds % grain == 0
    assert length.total_seconds() / scope.step_seconds <= MAX_BARS
