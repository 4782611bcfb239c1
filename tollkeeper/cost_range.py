"""Options that commands about costs share: a time range and its time zone."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final
from zoneinfo import ZoneInfo

import typer

from analytics.cost.periods import moment, month_of, time_zone
from analytics.scope import Period
from contracts.errors import InvalidRequest

From = Annotated[
    str,
    typer.Option("--from", help="Start date or time (default: start of the month in which the range ends)."),
]
To = Annotated[str, typer.Option("--to", help="End date or time, exclusive (default: now).")]
Month = Annotated[str, typer.Option("--month", help="Calendar month instead of --from and --to, such as 2026-11.")]
TimeZone = Annotated[str, typer.Option("--tz", help="Time zone of dates and periods, such as Europe/Berlin.")]
Tenant = Annotated[str, typer.Option("--tenant", help="Only this tenant (default: all).")]
Team = Annotated[str, typer.Option("--team", help="Only this team (default: all).")]

UTC_NAME: Final = "UTC"


def asked_range(begin: str, end: str, month: str, tz: str, now: datetime) -> tuple[Period, ZoneInfo]:
    """Return the options' range and time zone. Raises InvalidRequest if they are contradictory or invalid."""
    zone = time_zone(tz)
    if month and (begin or end):
        raise InvalidRequest("--month contradicts --from and --to; give one of them", param="month")
    if month:
        year, _, number = month.partition("-")
        if not (year.isdecimal() and number.isdecimal()):
            raise InvalidRequest(f"{month!r} is not a month; use the form 2026-11", param="month")
        return month_of(int(year), int(number), zone), zone
    until = moment(end, zone, "to") if end else _next_minute(now)
    if begin:
        return Period(moment(begin, zone, "from"), until), zone
    last = min(now, until - timedelta(microseconds=1)).astimezone(zone)
    return Period(month_of(last.year, last.month, zone).start, until), zone


def _next_minute(now: datetime) -> datetime:
    # Rollups have whole minutes, so "until now" includes the current minute.
    return datetime.fromtimestamp((int(now.timestamp()) // 60 + 1) * 60, UTC)
