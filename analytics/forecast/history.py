"""Each tenant's spending per whole day (UTC), without gaps: input of forecasts and anomalies."""

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
    """A tenant's spending per day since its first request; 0 on days without requests.

    `pico_usd` is the cost of priced requests. `unpriced` counts requests without a price: if there are any, spending
    and forecasts are too low.
    """

    tenant: str
    first_day: date
    pico_usd: tuple[int, ...]
    requests: tuple[int, ...]
    unpriced: int = 0

    def on(self, day: date) -> int | None:
        """Return a day's spending (pico-USD); `None` before the first and after the last day."""
        place = (day - self.first_day).days
        return self.pico_usd[place] if 0 <= place < len(self.pico_usd) else None


def spend_histories(store: StoreClient, first: date, until: date, tenant: str | None = None) -> dict[str, SpendHistory]:
    """Read the days from `first` to `until` (exclusive) of one tenant or all, by tenant, in one query.

    Raises StoreUnavailable.
    """
    parameters = {"start": _seconds(first), "end": _seconds(until), "tenant": tenant}
    return _histories(store.query(query("spend_days"), parameters), until)


def partial_histories(
    store: StoreClient, first: date, last: date, seconds: int, tenant: str | None = None
) -> dict[str, SpendHistory]:
    """Read the first `seconds` (whole hours) of each day from `first` to `last`, by tenant.

    Booked corrections are excluded, as they have no hour. Raises StoreUnavailable.
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
    """Return a history without gaps from the first day to `until`; `days` are (pico-USD, requests), at least one."""
    first = min(days)
    start = first.toordinal()
    by_place = {day.toordinal() - start: spent for day, spent in days.items()}
    nothing = (0, 0)
    span = [by_place.get(place, nothing) for place in range((until - first).days)]
    return SpendHistory(tenant, first, tuple(cost for cost, _ in span), tuple(count for _, count in span), unpriced)


def _seconds(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _day(value: object) -> date:
    """Convert a day from the store, a date or the time at which it begins."""
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    raise UnexpectedRow(f"the store gave {type(value).__name__} for a day; run `python -m migrations`")
