"""Splits a range into parts that daily, hourly and minute rollups cover, and the rest."""

from datetime import timedelta
from math import ceil, floor
from typing import Final

from analytics.explorer.question import RequestQuestion
from analytics.scope import DAYS_BY_MODEL, HOURS_KEPT, MINUTES_KEPT

_DAY: Final = 86_400
_HOUR: Final = 3_600
_MINUTE: Final = 60
_MARGIN: Final = timedelta(hours=2)  # retention of rollups: see `analytics.scope`


def summed_parts(question: RequestQuestion, step: int) -> dict[str, object]:
    """Return the additional parameters of requests_summed.sql: the parts of the range to read from the rollups by
    minute, hour and day, the coarsest where possible.

    A part is empty (start = end) if `step` (seconds) is finer than its rollup, or if the rollup has expired.
    """
    start, end = question.period.start.timestamp(), question.period.end.timestamp()
    age = question.asked_at - question.period.start
    is_of_teams = question.team is not None or question.project is not None
    keeps_hours = age <= HOURS_KEPT - _MARGIN
    days = _within(start, end, _DAY) if step % _DAY == 0 else None
    hours = _within(start, end, _HOUR) if step % _HOUR == 0 and keeps_hours else days
    minutes = _within(start, end, _MINUTE) if age <= MINUTES_KEPT - _MARGIN else hours
    nothing = (ceil(start), ceil(start))
    minutes = minutes or nothing
    hours = hours or (minutes[0], minutes[0])
    days = days or (hours[0], hours[0])
    return {
        "days": "requests_day" if is_of_teams else DAYS_BY_MODEL,
        "first_minute": minutes[0],
        "end_minute": minutes[1],
        "first_hour": hours[0],
        "end_hour": hours[1],
        "first_day": days[0],
        "end_day": days[1],
    }


def _within(start: float, end: float, length: int) -> tuple[int, int] | None:
    """Return the range of whole units of `length` seconds within a range; `None` if there is none."""
    first, last = ceil(start / length) * length, floor(end / length) * length
    return (first, last) if first < last else None
