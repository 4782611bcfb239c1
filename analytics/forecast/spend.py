"""Forecasts a tenant's spending per day, with an interval, and its month's total."""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

from analytics.anomaly.spend import is_unusual, usual_day
from analytics.forecast.history import PICO, SpendHistory, spend_histories
from analytics.forecast.paths import MIN_DAYS, draw_futures
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest

LEVEL: Final = 0.8  # default coverage of an interval
MAX_DAYS: Final = 92
HISTORY: Final = timedelta(days=182)
_PACE_DAYS: Final = 3
_WEEK_DAYS: Final = 7
_MOST_IN_A_ROW: Final = 3
_CENT: Final = Decimal("0.0001")


@dataclass(frozen=True, slots=True)
class ForecastDay:
    """Forecast of one day, in USD: the median, and the interval's ends."""

    day: date
    expected_usd: Decimal
    low_usd: Decimal
    high_usd: Decimal


@dataclass(frozen=True, slots=True)
class MonthEnd:
    """Forecast of the current month's total, in USD; unknown values are `None`.

    `spent_usd` is the exact spending of the month so far, including today. The interval is of the whole month.
    """

    month: str
    spent_usd: Decimal
    expected_usd: Decimal | None
    low_usd: Decimal | None
    high_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class SpendForecast:
    """Forecast of one tenant. `level`: the share of simulated paths within an interval. `reason`: missing data, if any.

    `method` is the ETS model's name, "pace" (the mean of few days, without an interval), or "none".
    """

    tenant: str
    level: float
    method: str
    reason: str
    history_days: int
    days: tuple[ForecastDay, ...]
    month: MonthEnd
    ignored_days: tuple[date, ...] = ()  # days of the history that are anomalies

    def as_json(self) -> dict[str, object]:
        """Return the JSON form that `tollkeeper forecast --json` prints; money is text."""
        return {
            "tenant": self.tenant,
            "level": self.level,
            "method": self.method,
            "reason": self.reason,
            "history_days": self.history_days,
            "ignored_days": [day.isoformat() for day in self.ignored_days],
            "month": {
                "month": self.month.month,
                "spent_usd": format(self.month.spent_usd, "f"),
                "expected_usd": _text(self.month.expected_usd),
                "low_usd": _text(self.month.low_usd),
                "high_usd": _text(self.month.high_usd),
            },
            "days": [
                {
                    "day": day.day.isoformat(),
                    "expected_usd": format(day.expected_usd, "f"),
                    "low_usd": format(day.low_usd, "f"),
                    "high_usd": format(day.high_usd, "f"),
                }
                for day in self.days
            ],
        }


def forecast_spend(
    store: StoreClient, now: datetime, *, tenant: str | None = None, days: int = 30, level: float = LEVEL
) -> tuple[SpendForecast, ...]:
    """Forecast the days from today (UTC) on, for one tenant or each, by name. Raises StoreUnavailable.

    Takes 0.1 s per tenant. Tenants without a request in the last half year are left out.
    """
    if now.utcoffset() is None:
        raise InvalidRequest("a forecast's now needs a time zone; use UTC", param="now")
    today = now.astimezone(UTC).date()
    until = today + timedelta(days=1)
    histories = spend_histories(store, today - HISTORY, until, tenant)
    return tuple(forecast_of(name, histories[name], today, days=days, level=level) for name in sorted(histories))


def forecast_of(
    tenant: str, history: SpendHistory, today: date, *, days: int = 30, level: float = LEVEL
) -> SpendForecast:
    """Forecast from a history, which may include today's spending so far.

    Raises InvalidRequest unless `days` is 1 to 92 and `level` 0.5 to 0.99.
    """
    if not 1 <= days <= MAX_DAYS:
        raise InvalidRequest(f"a forecast is of 1 to {MAX_DAYS} days, not {days}", param="days")
    if not 0.5 <= level <= 0.99:
        raise InvalidRequest(f"an interval's level is from 0.5 to 0.99, not {level:g}", param="level")
    whole, ignored = usual_days(history, today)
    begun = history.on(today) or 0
    spent = _spent_in_month(history, today)
    left = _days_left(today)
    futures = draw_futures([value / PICO for value in whole], max(days, left))
    name = f"{today:%Y-%m}"
    if futures is None:
        return replace(_without_model(tenant, level, whole, begun, spent, left, name), ignored_days=ignored)
    paths = futures.paths
    paths[:, 0] = paths[:, 0].clip(min=begun / PICO)  # today's total is at least its spending so far
    below, above = (1 - level) / 2, (1 + level) / 2
    low, middle, high = futures.quantile(below), futures.quantile(0.5), futures.quantile(above)
    first = [
        ForecastDay(today + timedelta(days=place), _usd(middle[place]), _usd(low[place]), _usd(high[place]))
        for place in range(days)
    ]
    before = Decimal(spent - begun) / PICO  # the paths have the rest of the month, including all of today
    month = MonthEnd(
        name,
        Decimal(spent) / PICO,
        *(before + _usd(futures.total_quantile(share, left)) for share in (0.5, below, above)),
    )
    reason = ""
    if history.unpriced:
        reason = f"{history.unpriced} requests have no price or unknown usage; what they cost is not in it"
    return SpendForecast(tenant, level, futures.method, reason, len(whole), tuple(first), month, ignored)


def usual_days(history: SpendHistory, today: date) -> tuple[tuple[int, ...], tuple[date, ...]]:
    """Return the spending (pico-USD) of whole days before today, anomalous days replaced by the expected day, and the
    replaced days.

    A day is compared with the same weekday of at least three weeks. More than three anomalous days in a row are a new
    level and are not replaced.
    """
    whole = list(history.pico_usd[: max((today - history.first_day).days, 0)])
    run: list[tuple[int, date, int]] = []
    ignored: list[date] = []
    for place in range(3 * _WEEK_DAYS, len(whole) + 1):
        day = history.first_day + timedelta(days=place)
        usual = None if place == len(whole) else usual_day(history, day)
        if usual is not None and is_unusual(history, day, usual):
            run.append((place, day, history.on(usual) or 0))
            continue
        if len(run) <= _MOST_IN_A_ROW:
            for at, flagged, expected in run:
                whole[at] = expected
                ignored.append(flagged)
        run = []
    return tuple(whole), tuple(ignored)


def _without_model(
    tenant: str, level: float, whole: tuple[int, ...], begun: int, spent: int, left: int, name: str
) -> SpendForecast:
    """Return a forecast without a model: from three days on their mean without an interval, else only the reason."""
    reason = f"{len(whole)} whole days of history; an interval needs {MIN_DAYS}"
    if len(whole) >= MIN_DAYS:
        reason = f"the last {len(whole)} days have no priced spending to carry on"
    expected = None
    if len(whole) >= _PACE_DAYS and any(whole):
        mean = sum(whole) // len(whole)
        expected = Decimal(spent - begun + max(begun, mean) + mean * (left - 1)) / PICO
    month = MonthEnd(name, Decimal(spent) / PICO, expected, None, None)
    return SpendForecast(tenant, level, "none" if expected is None else "pace", reason, len(whole), (), month)


def _spent_in_month(history: SpendHistory, today: date) -> int:
    first = today.replace(day=1)
    return sum(history.on(first + timedelta(days=place)) or 0 for place in range(today.day))


def _days_left(today: date) -> int:
    """Return the number of days left in the month, including today."""
    return ((today.replace(day=28) + timedelta(days=4)).replace(day=1) - today).days


def _usd(value: float) -> Decimal:
    return Decimal(repr(value)).quantize(_CENT)


def _text(value: Decimal | None) -> str | None:
    return None if value is None else format(value, "f")
