"""Calendar periods of budgets in a tenant's time zone, and forecasts of their spending.

All times are Unix nanoseconds. A day has 23, 24 or 25 hours when clocks change.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Final
from zoneinfo import ZoneInfo

from contracts.errors import ConfigurationError
from contracts.rules.limits import BudgetSpec, Period

_SECOND_NS: Final = 1_000_000_000
_ONE_DAY: Final = timedelta(days=1)


def zone_of(time_zone: str) -> ZoneInfo:
    """Return the zone of an IANA name such as "Europe/Berlin". Raises ConfigurationError if there is none."""
    try:
        return ZoneInfo(time_zone)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigurationError(f"time zone {time_zone!r} is unknown; name one such as 'Europe/Berlin'") from error


def period_bounds(period: Period, time_zone: str, at_ns: int) -> tuple[int, int | None]:
    """Return the start (inclusive) and the end (exclusive) of the period that contains `at_ns`.

    Weeks start on Monday. `total` starts with Unix time and has no end (`None`). Raises ConfigurationError if the time
    zone is unknown.
    """
    if period == "total":
        return 0, None
    zone = zone_of(time_zone)
    first = _first_day(period, datetime.fromtimestamp(at_ns // _SECOND_NS, zone).date())
    start_ns, after = _midnight_ns(first, zone), _first_day_after(period, first)
    end_ns = _midnight_ns(after, zone)
    if at_ns >= end_ns:
        # If clocks are set back across midnight, the last hour of a day repeats after the next has started (St. John's,
        # until 2011). A day starts once: the repeated hour belongs to the next.
        start_ns, end_ns = end_ns, _midnight_ns(_first_day_after(period, after), zone)
    return start_ns, end_ns


def budget_period(budget: BudgetSpec, at_ns: int) -> tuple[int, int | None] | None:
    """Return the bounds of the budget's period that contains `at_ns`, clipped to the budget's start and end.

    `None` if it is not in effect at that time. Raises ConfigurationError if its time zone is unknown.
    """
    starts_at_ns, ends_at_ns = budget.starts_at_ns, budget.ends_at_ns
    if starts_at_ns is not None and at_ns < starts_at_ns:
        return None
    if ends_at_ns is not None and at_ns >= ends_at_ns:
        return None
    start_ns, end_ns = period_bounds(budget.period, budget.time_zone, at_ns)
    if starts_at_ns is not None:
        start_ns = max(start_ns, starts_at_ns)
    if ends_at_ns is not None:
        end_ns = ends_at_ns if end_ns is None else min(end_ns, ends_at_ns)
    return start_ns, end_ns


def _first_day(period: Period, day: date) -> date:
    if period == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if period == "month" else day


def _first_day_after(period: Period, first: date) -> date:
    if period == "week":
        return first + timedelta(days=7)
    if period == "month":
        return (first.replace(day=28) + timedelta(days=4)).replace(day=1)
    return first + _ONE_DAY


def _midnight_ns(day: date, zone: ZoneInfo) -> int:
    """Return when a day starts: the earlier of two midnights, and the time of the clock change if there is none."""
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * _SECOND_NS


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast for a period at its mean rate so far.

    `projected` is the usage at its end, in the metric's base unit; `None` if it has no end. `exhausted_at_ns` is when
    the amount is used up; `None` if that is not within the period.
    """

    projected: int | None
    exhausted_at_ns: int | None


LEAST_PACE: Final = Fraction(1, 10)  # minimum part of a period before its rate is extrapolated


def budget_outlook(
    amount: int, used: int, start_ns: int, counts_since_ns: int, now_ns: int, end_ns: int | None
) -> Forecast:
    """Extrapolate a budget's spending as `forecast` does, once a tenth of its period was counted.

    `counts_since_ns` is when counting started, if later than the period's start.
    """
    since_ns = max(start_ns, counts_since_ns)
    outlook = forecast(amount, used, since_ns, now_ns, end_ns)
    if end_ns is not None and now_ns - since_ns < (end_ns - start_ns) * LEAST_PACE:
        return Forecast(None, outlook.exhausted_at_ns if used >= amount else None)
    return outlook


def forecast(amount: int, used: int, since_ns: int, now_ns: int, end_ns: int | None) -> Forecast:
    """Extrapolate the mean rate since `since_ns` to the period's end.

    For a period without a start (`total`), `since_ns` is when the first use was counted.
    """
    elapsed_ns = now_ns - since_ns
    if used >= amount:
        exhausted_at_ns: int | None = now_ns
    elif used <= 0 or elapsed_ns <= 0:
        exhausted_at_ns = None
    else:
        exhausted_at_ns = now_ns + -(-(amount - used) * elapsed_ns // used)
        if end_ns is not None and exhausted_at_ns >= end_ns:
            exhausted_at_ns = None
    if end_ns is None:
        return Forecast(None, exhausted_at_ns)
    if elapsed_ns <= 0:
        return Forecast(used, exhausted_at_ns)
    return Forecast(used + used * max(end_ns - now_ns, 0) // elapsed_ns, exhausted_at_ns)
