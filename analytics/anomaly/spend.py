"""Days on which a tenant spent much more or less than on such days before, and what drove it.

What a day is compared with is the median of the same weekday in the weeks before: robust against the last anomaly, and
one concrete day, so that the difference can be explained model by model and to the pico-dollar.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

from analytics.anomaly.drivers import Change, Driver, Use, explain
from analytics.forecast.history import PICO, SpendHistory, spend_histories
from analytics.queries import query
from analytics.rows import money_of, number_of, text_of
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest
from contracts.pricing.money import usd

_WEEKS: Final = 6
_FEWEST_WEEKS: Final = 3
_NEAR_DAYS: Final = 14
_FEWEST_NEAR_DAYS: Final = 7
_DEVIATIONS: Final = 4.0
_NORMAL: Final = 1.4826  # of a median absolute deviation: the standard deviation where errors are normal
_LEAST_SHARE: Final = Decimal("0.25")  # of what was expected: smaller changes are nobody's concern
_LEAST_USD: Final = Decimal("1")
_MODELS: Final = 5_000


@dataclass(frozen=True, slots=True)
class SpendAnomaly:
    """A day out of the usual. `parts` are pico-USD by driver, and sum to observed - expected exactly.

    `compared_with` is the day whose spending was expected.
    """

    tenant: str
    day: date
    observed_usd: Decimal
    expected_usd: Decimal
    compared_with: date
    driver: Driver
    parts: Mapping[Driver, int]

    def as_json(self) -> dict[str, object]:
        """Return what is printed of it; money as text."""
        return {
            "tenant": self.tenant,
            "day": self.day.isoformat(),
            "observed_usd": format(self.observed_usd, "f"),
            "expected_usd": format(self.expected_usd, "f"),
            "compared_with": self.compared_with.isoformat(),
            "driver": self.driver,
            "parts_usd": {name: format(usd(part), "f") for name, part in self.parts.items()},
        }


def spend_anomalies(
    store: StoreClient, now: datetime, *, tenant: str | None = None, day: date | None = None
) -> tuple[SpendAnomaly, ...]:
    """Look at one whole day (UTC; yesterday unless told) of all tenants or one, the largest difference first.

    One query for all, and two for each anomaly. Tenants with too little history have none. Raises StoreUnavailable.
    """
    if now.utcoffset() is None:
        raise InvalidRequest("an anomaly's now needs a time zone; use UTC", param="now")
    today = now.astimezone(UTC).date()
    looked_at = day or today - timedelta(days=1)
    if looked_at >= today:
        raise InvalidRequest(
            f"{looked_at} is not over (UTC), and part of a day always looks like too little; choose an earlier one",
            param="day",
        )
    first = looked_at - timedelta(days=7 * _WEEKS)
    histories = spend_histories(store, first, looked_at + timedelta(days=1), tenant)
    found = []
    for name, history in histories.items():
        usual = usual_day(history, looked_at)
        if usual is not None and is_unusual(history, looked_at, usual):
            change = explain(_uses(store, name, usual), _uses(store, name, looked_at))
            found.append(_anomaly(history, looked_at, usual, change))
    return tuple(sorted(found, key=lambda one: -abs(one.observed_usd - one.expected_usd)))


def usual_day(history: SpendHistory, day: date) -> date | None:
    """Return the day to compare with: the (lower) median of the same weekday's, else of the last two weeks'.

    `None` with fewer than three such weekdays and seven such days.
    """
    days = _compared(history, day)
    if not days:
        return None
    ordered = sorted(days, key=lambda one: (history.on(one) or 0, one))
    return ordered[(len(ordered) - 1) // 2]


def is_unusual(history: SpendHistory, day: date, usual: date) -> bool:
    """Return whether a day differs from the usual one by more than 4 robust deviations, a quarter, and a dollar."""
    observed, expected = history.on(day), history.on(usual)
    if observed is None or expected is None:
        return False
    difference = abs(observed - expected)
    if difference < _LEAST_USD * PICO or difference < _LEAST_SHARE * expected:
        return False
    deviations = sorted(abs((history.on(one) or 0) - expected) for one in _compared(history, day))
    spread = _NORMAL * deviations[len(deviations) // 2]
    return difference > _DEVIATIONS * spread


def _compared(history: SpendHistory, day: date) -> list[date]:
    weekdays = [day - timedelta(days=7 * week) for week in range(1, _WEEKS + 1)]
    weekdays = [one for one in weekdays if history.on(one) is not None]
    if len(weekdays) >= _FEWEST_WEEKS:
        return weekdays
    near = [day - timedelta(days=number) for number in range(1, _NEAR_DAYS + 1)]
    near = [one for one in near if history.on(one) is not None]
    return near if len(near) >= _FEWEST_NEAR_DAYS else []


def _uses(store: StoreClient, tenant: str, day: date) -> dict[str, Use]:
    """Read a tenant's day by model."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    parameters = {
        **dict.fromkeys(("rollup", "days"), "tenant_model_day"),
        **dict.fromkeys(("start", "first_day"), int(start.timestamp())),
        **dict.fromkeys(("end", "end_day"), int((start + timedelta(days=1)).timestamp())),
        "tenant": tenant,
        "team": None,
        "project": None,
        "model": None,
        "row_limit": _MODELS,
    }
    return {
        text_of(row["model"]): Use(
            requests=number_of(row["request_count"]),
            input_tokens=number_of(row["input_sum"]),
            cached=number_of(row["cached_input_sum"]),
            output_tokens=number_of(row["output_sum"]),
            pico_usd=int(money_of(row["cost_sum"]) * PICO),
        )
        for row in store.query(query("volumes"), parameters)
        if not number_of(row["is_total"])
    }


def _anomaly(history: SpendHistory, day: date, usual: date, change: Change) -> SpendAnomaly:
    return SpendAnomaly(
        history.tenant,
        day,
        usd(history.on(day) or 0),
        usd(history.on(usual) or 0),
        usual,
        change.driver,
        change.parts,
    )
