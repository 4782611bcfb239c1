"""Each tenant's spending on each whole day (UTC), without gaps: input of forecasts and anomalies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, cast

from analytics.queries import query
from analytics.rows import UnexpectedRow, money_of, number_of, text_of
from backends.store.client import Row, StoreClient
from contracts.pricing.money import pico_usd

PICO: Final = 10**12


@dataclass(frozen=True, slots=True)
class SpendHistory:
    """A tenant's days from its first request on; a day without requests is one of 0.

    `pico_usd` is what priced requests cost. `unpriced` counts requests without a price: where there are any, what is
    known is too little, and so is every forecast from it.
    """

    tenant: str
    first_day: date
    pico_usd: tuple[int, ...]
    requests: tuple[int, ...]
    unpriced: int = 0

    def on(self, day: date) -> int | None:
        """Return a day's spending; `None` before the first and after the last."""
        place = (day - self.first_day).days
        return self.pico_usd[place] if 0 <= place < len(self.pico_usd) else None


def spend_histories(store: StoreClient, first: date, until: date, tenant: str | None = None) -> dict[str, SpendHistory]:
    """Read the days from `first` to `until` (which is left out) of one tenant or all, by tenant. One query.

    Raises StoreUnavailable.
    """
    parameters = {"start": _seconds(first), "end": _seconds(until), "tenant": tenant}
    return _histories(store.query(query("spend_days"), parameters), until)


def partial_histories(
    store: StoreClient, first: date, last: date, seconds: int, tenant: str | None = None
) -> dict[str, SpendHistory]:
    """Read the days from `first` to `last`, each as far as some seconds after its beginning (whole hours), by tenant.

    Without booked corrections, which have no hour. Raises StoreUnavailable.
    """
    until = last + timedelta(days=1)
    parameters = {"start": _seconds(first), "end": _seconds(until), "seconds": seconds, "tenant": tenant}
    return _histories(store.query(query("spend_until"), parameters), until)


def _histories(rows: Iterable[Row], until: date) -> dict[str, SpendHistory]:
    found: dict[str, SpendHistory] = {}
    for row in rows:
        days, costs, counts = (cast(Sequence[Any], row[name]) for name in ("days", "cost_sums", "request_counts"))
        spent = {
            _day(day): (pico_usd(money_of(cost)), number_of(count))
            for day, cost, count in zip(days, costs, counts, strict=True)
        }
        name = text_of(row["tenant_label"])
        found[name] = history_of(name, spent, until, number_of(row.get("unpriced_count", 0)))
    return found


def history_of(tenant: str, days: Mapping[date, tuple[int, int]], until: date, unpriced: int = 0) -> SpendHistory:
    """Fill the holes between a tenant's first day and `until`; `days` are (pico-USD, requests) and not empty."""
    first = min(days)
    start = first.toordinal()
    by_place = {day.toordinal() - start: spent for day, spent in days.items()}
    nothing = (0, 0)
    span = [by_place.get(place, nothing) for place in range((until - first).days)]
    return SpendHistory(tenant, first, tuple(cost for cost, _ in span), tuple(count for _, count in span), unpriced)


def _seconds(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _day(value: object) -> date:
    """Read a day, which the store gives as a date or as the moment it begins."""
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    raise UnexpectedRow(f"the store gave {type(value).__name__} for a day; run `python -m migrations`")
