"""Splits time into calendar periods of a time zone, in UTC: a local day has 23, 24 or 25 hours, without overlaps."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from analytics.scope import Period
from contracts.errors import InvalidRequest

PeriodGrain = Literal["hour", "day", "week", "month", "year"]
GRAINS: Final[tuple[PeriodGrain, ...]] = ("hour", "day", "week", "month", "year")
MAX_PERIODS: Final = 2_400  # a hundred days of hours; their bounds are query parameters


def time_zone(name: str) -> ZoneInfo:
    """Return a zone of the IANA database, such as "Europe/Berlin". Raises InvalidRequest if it does not exist."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: the name is a directory of the database
        raise InvalidRequest(
            f"{name!r} is not a time zone; use one such as Europe/Berlin, America/New_York or UTC", param="tz"
        ) from error


def split(whole: Period, grain: PeriodGrain | None, zone: ZoneInfo) -> tuple[Period, ...]:
    """Split a period into hours, days, weeks (from Monday), months or years of a time zone.

    The first and the last may be incomplete; `None` returns the whole period. Raises InvalidRequest beyond 2,400.
    """
    starts = [whole.start]
    if grain is not None:
        for boundary in _boundaries(whole.start, grain, zone):
            if boundary >= whole.end:
                break
            starts.append(boundary)
            if len(starts) > MAX_PERIODS:
                raise InvalidRequest(
                    f"the range has more than {MAX_PERIODS} periods of one {grain}; choose a coarser grain or a "
                    "shorter range",
                    param="grain",
                )
    return tuple(Period(start, end) for start, end in zip(starts, [*starts[1:], whole.end], strict=True))


def month_of(year: int, month: int, zone: ZoneInfo) -> Period:
    """Return a calendar month in a time zone. Raises InvalidRequest if it does not exist."""
    try:
        first = date(year, month, 1)
        return Period(_midnight(first, zone), _midnight(_next_date(first, "month"), zone))
    except (ValueError, OverflowError) as error:  # outside of datetime's range, also because of the zone
        raise InvalidRequest(f"{year}-{month} is not a month; use the form 2026-11", param="month") from error


def moment(text: str, zone: ZoneInfo, name: str) -> datetime:
    """Parse a date (its midnight in the zone) or a time (in the zone, unless it has an offset).

    Raises InvalidRequest if it is neither.
    """
    try:
        read = datetime.fromisoformat(text)
        return (read.replace(tzinfo=zone) if read.utcoffset() is None else read).astimezone(UTC)
    except (ValueError, OverflowError) as error:  # OverflowError: the zone moves it out of datetime's range
        raise InvalidRequest(
            f"{text!r} is not a time; use a date such as 2026-11-01, or 2026-11-01T08:00", param=name
        ) from error


def _boundaries(start: datetime, grain: PeriodGrain, zone: ZoneInfo) -> Iterator[datetime]:
    at = start
    while True:
        local = at.astimezone(zone)
        if grain == "hour":  # in UTC: an hour that occurs twice at the end of daylight saving time is two hours
            into = timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
            at = at + timedelta(hours=1) - into
        else:
            at = _midnight(_next_date(local.date(), grain), zone)
        yield at


def _next_date(day: date, grain: PeriodGrain) -> date:
    if grain == "year":
        return date(day.year + 1, 1, 1)
    if grain == "month":
        return date(day.year + day.month // 12, day.month % 12 + 1, 1)
    return day + timedelta(days=7 - day.weekday() if grain == "week" else 1)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    # If the clock skips midnight, the time of the change; if midnight occurs twice, the first.
    return datetime.combine(day, time.min, zone).astimezone(UTC)
