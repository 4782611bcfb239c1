"""Detects days on which a tenant spent much more or less than usual, with the driver; also for today so far.

A day is compared with the median of the same weekday in previous weeks. The median is robust against earlier anomalies
and is a specific day, so the difference can be decomposed by model, exactly.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

from analytics.anomaly.drivers import Change, Driver, Use, explain
from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.forecast.history import PICO, SpendHistory, partial_histories, spend_histories
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
_NORMAL: Final = 1.4826  # factor from median absolute deviation to standard deviation, for normal errors
_LEAST_SHARE: Final = Decimal("0.25")  # minimum change, as a share of the expected spending
_LEAST_USD: Final = Decimal("1")
_MODELS: Final = 5_000
_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Contributor:
    """The key, user and model whose spending grew most, the growth, and the number of requests."""

    key: str
    user: str
    model: str
    more_usd: Decimal
    requests: int

    @property
    def action(self) -> str:
        """Return what to do if the spending is not intended."""
        if not self.key:
            return "look at these requests (page Requests), and limit the tenant (tollkeeper limits create)"
        return (
            f"if not intended, limit the key (tollkeeper limits create TENANT --level key --subject {self.key} ...) or "
            f"revoke it (tollkeeper keys delete {self.key})"
        )

    def as_json(self) -> dict[str, object]:
        """Return the fields by name for JSON; money as decimal text."""
        return {
            "key": self.key,
            "user": self.user,
            "model": self.model,
            "more_usd": format(self.more_usd, "f"),
            "requests": self.requests,
            "action": self.action,
        }


@dataclass(frozen=True, slots=True)
class SpendAnomaly:
    """A day with unusual spending. `parts`: pico-USD by driver, which sum exactly to observed minus expected.

    `compared_with`: the day whose spending was expected. `until`: set if the day is not over; both days are compared up
    to this time of day. `contributor` is `None` if spending fell, or if single requests are no longer stored.
    """

    tenant: str
    day: date
    observed_usd: Decimal
    expected_usd: Decimal
    compared_with: date
    driver: Driver
    parts: Mapping[Driver, int]
    until: datetime | None = None
    contributor: Contributor | None = None

    def as_json(self) -> dict[str, object]:
        """Return the anomaly as JSON types; money as text."""
        return {
            "tenant": self.tenant,
            "day": self.day.isoformat(),
            "observed_usd": format(self.observed_usd, "f"),
            "expected_usd": format(self.expected_usd, "f"),
            "compared_with": self.compared_with.isoformat(),
            "driver": self.driver,
            "parts_usd": {name: format(usd(part), "f") for name, part in self.parts.items()},
            "until": None if self.until is None else self.until.isoformat(),
            "contributor": None if self.contributor is None else self.contributor.as_json(),
        }


def spend_anomalies(
    store: StoreClient, now: datetime, *, tenant: str | None = None, day: date | None = None
) -> tuple[SpendAnomaly, ...]:
    """Return the anomalies of one whole day (UTC; default yesterday) of all tenants or one, largest difference first.

    Runs one query, and two for each anomaly. Tenants with too little history have none. Raises StoreUnavailable.
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
            found.append(
                replace(
                    _anomaly(history, looked_at, usual, change),
                    contributor=_contributor(store, name, usual, looked_at, _DAY_SECONDS),
                )
            )
    return _largest_first(found)


def anomalies_of_today(store: StoreClient, now: datetime, *, tenant: str | None = None) -> tuple[SpendAnomaly, ...]:
    """Return the tenants with unusually high spending in today's completed hours (UTC), largest difference first.

    Unusually low spending is reported only for whole days. Runs one query, and three for each anomaly. Raises
    StoreUnavailable.
    """
    if now.utcoffset() is None:
        raise InvalidRequest("an anomaly's now needs a time zone; use UTC", param="now")
    at = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    today, seconds = at.date(), at.hour * 3_600
    if not seconds:
        return ()
    first = today - timedelta(days=7 * _WEEKS)
    found = []
    for name, history in partial_histories(store, first, today, seconds, tenant).items():
        usual = usual_day(history, today)
        if usual is None or (history.on(today) or 0) <= (history.on(usual) or 0):
            continue
        if is_unusual(history, today, usual):
            before, after = (_uses_until(store, name, day, seconds, at) for day in (usual, today))
            change = explain(before, after)
            contributor = _contributor(store, name, usual, today, seconds)
            found.append(replace(_anomaly(history, today, usual, change), until=at, contributor=contributor))
    return _largest_first(found)


def anomalies_on(
    store: StoreClient, now: datetime, day: date | None, *, tenant: str | None = None
) -> tuple[SpendAnomaly, ...]:
    """Return the anomalies of a past day (yesterday if `None`), or of today so far. Raises StoreUnavailable."""
    if day is not None and day == now.astimezone(UTC).date():
        return anomalies_of_today(store, now, tenant=tenant)
    return spend_anomalies(store, now, tenant=tenant, day=day)


def _largest_first(found: Iterable[SpendAnomaly]) -> tuple[SpendAnomaly, ...]:
    return tuple(sorted(found, key=lambda one: -abs(one.observed_usd - one.expected_usd)))


def usual_day(history: SpendHistory, day: date) -> date | None:
    """Return the day to compare with: the lower median of earlier same weekdays, else of the last two weeks.

    `None` if there are fewer than three such weekdays and fewer than seven such days.
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
    """Return a tenant's usage on a day, by model."""
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


def _uses_until(store: StoreClient, tenant: str, day: date, seconds: int, now: datetime) -> dict[str, Use]:
    """Return a tenant's usage in the first `seconds` of a day, by model."""
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    question = CostQuestion(start, start + timedelta(seconds=seconds), ("model",), tenant=tenant, asked_at=now)
    report = cost_report(store, question, with_attempts=False, stays_with_sums=True)
    return {
        line.path[0]: Use(
            line.sums.requests,
            line.sums.input_tokens,
            line.sums.cached_input_tokens,
            line.sums.output_tokens,
            line.sums.priced_pico_usd,
        )
        for line in report.lines
    }


def _contributor(store: StoreClient, tenant: str, before: date, day: date, seconds: int) -> Contributor | None:
    start, earlier = (int(datetime(one.year, one.month, one.day, tzinfo=UTC).timestamp()) for one in (day, before))
    parameters = {
        "tenant": tenant,
        "start": start,
        "end": start + seconds,
        "before": earlier,
        "before_end": earlier + seconds,
    }
    for row in store.query(query("spend_contributor"), parameters):
        return Contributor(
            text_of(row["key_label"]),
            text_of(row["user_label"]),
            text_of(row["model_label"]),
            money_of(row["more_usd"]),
            number_of(row["request_count"]),
        )
    return None


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
