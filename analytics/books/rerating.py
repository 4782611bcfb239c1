"""Rerating: computes the cost of recorded requests at another price card, and the entries for the difference.

Groups without a price card now, failed requests, and cached responses (priced by a policy) keep their recorded price,
so a missing card never causes a credit.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, NamedTuple

from analytics.books.calendars import Calendars, days_period
from analytics.books.class_prices import class_columns, price_parameters
from analytics.cost.periods import split
from analytics.cost.question import CostQuestion
from analytics.cost.report import check_not_deleted
from analytics.queries import query
from analytics.rows import texts_of, whole_numbers
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest
from contracts.metering.usage import LEAVES
from contracts.pricing.book_entries import EFFECT_FIELDS, Effect, Entry, EntryGroup
from contracts.pricing.prices import AnyCard, PriceBook

_LABELS: Final = ("tenant", "team", "project", "key_id", "model", "provider", "price_version")


@dataclass(frozen=True, slots=True)
class RerateQuestion:
    """The requests to rerate: from a date until another (exclusive), in each tenant's time zone.

    Only whole days, because corrections are grouped by day and would overlap otherwise. `card` prices all requests that
    it applies to, even outside of its validity; `None`: the card valid for each request.
    """

    first: date
    after: date
    asked_at: datetime
    tenant: str = ""
    model: str = ""
    card: AnyCard | None = None


class Rerated(NamedTuple):
    """One group: its recorded cost, and the difference of the new price to it, in pico-USD."""

    requests: int
    recorded_pico_usd: int
    effect: Effect

    def __add__(self, other: "Rerated") -> "Rerated":  # type: ignore[override]  # no tuple is joined to another
        """Return the sum with another part of the same group."""
        return Rerated(
            self.requests + other.requests,
            self.recorded_pico_usd + other.recorded_pico_usd,
            self.effect + other.effect,
        )


def rerate(
    store: StoreClient, question: RerateQuestion, cards: Sequence[AnyCard], calendars: Calendars
) -> dict[EntryGroup, Rerated]:
    """Return the rerated groups of a question: all that a card prices, with an effect of 0 if the price is unchanged.

    Raises InvalidRequest if the requests have expired, StoreUnavailable.
    """
    if question.after <= question.first:
        raise InvalidRequest(
            f"the range ends ({question.after}) before it starts ({question.first}); choose a later end", param="to"
        )
    book = PriceBook(cards)
    used = [*cards, *([] if question.card is None or question.card in cards else [question.card])]
    found: dict[EntryGroup, Rerated] = {}
    for zone in calendars.zones(question.tenant):
        whole = days_period(question.first, question.after, zone)
        asked = CostQuestion(
            whole.start,
            whole.end,
            tenant=question.tenant or None,
            model=question.model or None,
            asked_at=question.asked_at,
        )
        asked.check_kept("requests")
        check_not_deleted(store, asked)
        days = split(whole, "day", zone)
        middles = {day.start_s: _middle(day) for day in days}
        parameters = {**price_parameters(asked, used), "start": whole.start_s, "end": whole.end_s}
        for classes in class_columns(store, asked, parameters, question.card, book):
            starts = {"starts": [day.start_s for day in days], "leaves": list(LEAVES)}
            columns = store.query_columns(query("rerated_usage"), {**parameters, **starts, **classes})
            if columns:
                _add(
                    found,
                    columns,
                    {name for name in texts_of(columns["tenant"]) if calendars.zone(name) == zone},
                    middles,
                )
    return found


def _add(
    found: dict[EntryGroup, Rerated],
    columns: Mapping[str, Sequence[object]],
    tenants: Collection[object],
    middles: Mapping[int, datetime],
) -> None:
    """Add a query's groups of some tenants to `found`. A group's requests may be spread over several queries."""
    labels = zip(*(texts_of(columns[name]) for name in _LABELS), strict=True)
    numbers = zip(
        *(whole_numbers(columns[name]) for name in ("requests", "recorded_pico_usd", *EFFECT_FIELDS)), strict=True
    )
    moments = [middles[start] for start in whole_numbers(columns["period_start"])]
    for label, moment, (requests, recorded, *effect) in zip(labels, moments, numbers, strict=True):
        if label[0] in tenants:
            name = EntryGroup._make((*label, moment))
            one = Rerated(requests, recorded, Effect._make(effect))
            known = found.get(name)
            found[name] = one if known is None else known + one


def entries_to_book(
    rerated: Mapping[EntryGroup, Rerated], booked: Mapping[EntryGroup, Effect], calendars: Calendars
) -> list[Entry]:
    """Return the entries for the difference between booked and required corrections, in the order of the groups.

    Empty if all is booked, so that repeating a rerate writes nothing.
    """
    months: dict[tuple[str, datetime], str] = {}
    entries = []
    for group in sorted(rerated):
        one, before = rerated[group], booked.get(group)
        effect = one.effect if before is None else one.effect - before
        if effect:
            day = (group.tenant, group.used_at)
            if day not in months:
                months[day] = calendars.month(*day)
            entries.append(Entry(group, effect, one.requests, months[day]))
    return entries


def _middle(day: Period) -> datetime:
    """Return the middle of a day, which is in the same month in other time zones too."""
    return datetime.fromtimestamp((day.start_s + day.end_s) // 2, UTC)
