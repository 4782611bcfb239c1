"""Rerating: what recorded requests cost by another card, less what they were booked at, as entries of the books.

A group keeps its recorded price if no card prices it now, if it failed, or if a kept answer was sold at a policy's
price. So a card that is missing never credits anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from analytics.books.calendars import Calendars, days_period
from analytics.cost.periods import split
from analytics.cost.question import CostQuestion
from analytics.prices.repricing import GroupCost, card_for, is_for, price_group
from analytics.prices.usage_groups import UsageGroup, usage_groups
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest
from contracts.metering.usage import INPUT_LEAVES, LEAVES
from contracts.pricing.book_entries import Effect, Entry, EntryGroup
from contracts.pricing.prices import AnyCard, PriceBook

_LEVELS = ("team", "project", "key")


@dataclass(frozen=True, slots=True)
class RerateQuestion:
    """Which requests are priced again: those from a date until another (exclusive) of each tenant's own calendar.

    Whole days, as a day is what a group is of: of parts of one, corrections would overlap. `card` prices all that it is
    made for, also outside of its dates; `None`: the card that holds for each.
    """

    first: date
    after: date
    asked_at: datetime
    tenant: str = ""
    model: str = ""
    card: AnyCard | None = None


@dataclass(frozen=True, slots=True)
class Rerated:
    """One group: what its requests were recorded at, and by how much the cards' price differs from that."""

    requests: int
    recorded_pico_usd: int
    effect: Effect

    def __add__(self, other: "Rerated") -> "Rerated":
        """Add another part of the same group."""
        return Rerated(
            self.requests + other.requests,
            self.recorded_pico_usd + other.recorded_pico_usd,
            self.effect + other.effect,
        )


def rerate(
    store: StoreClient, question: RerateQuestion, cards: Sequence[AnyCard], calendars: Calendars
) -> dict[EntryGroup, Rerated]:
    """Price the requests of a question again, by group. Every group of the question that a card prices is in it, with
    an effect of zero if its price is as recorded.

    Raise InvalidRequest if the requests are no longer kept, StoreUnavailable.
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
        days = split(whole, "day", zone)
        asked = CostQuestion(
            whole.start,
            whole.end,
            _LEVELS,
            tenant=question.tenant or None,
            model=question.model or None,
            asked_at=question.asked_at,
        )
        middles = {day.start_s: _middle(day) for day in days}
        for group in usage_groups(store, asked, used, starts=[day.start_s for day in days]):
            if calendars.zone(group.tenant) != zone:
                continue
            cost = _price(group, question.card, book)
            if cost is None:
                continue
            name = EntryGroup(
                group.tenant,
                group.team,
                group.project,
                group.key,
                group.model,
                group.provider,
                group.price_version,
                middles[group.period_start],
            )
            one = Rerated(group.requests, group.cost_pico_usd, _effect(group, cost))
            known = found.get(name)
            found[name] = one if known is None else known + one
    return found


def entries_to_book(
    rerated: Mapping[EntryGroup, Rerated], booked: Mapping[EntryGroup, Effect], calendars: Calendars
) -> list[Entry]:
    """Return what is missing between what is booked and what the cards ask, in the order of the groups.

    Nothing if it is all booked: the same rerate twice writes nothing the second time.
    """
    nothing = Effect()
    entries = []
    for group in sorted(rerated):
        one = rerated[group]
        effect = one.effect - booked.get(group, nothing)
        if effect:
            period = calendars.month(group.tenant, group.used_at)
            entries.append(Entry(group, effect, one.requests, period))
    return entries


def _middle(day: Period) -> datetime:
    """Return the middle of a day: so an entry is in its month also by the calendar of another time zone."""
    return datetime.fromtimestamp((day.start_s + day.end_s) // 2, UTC)


def _price(group: UsageGroup, candidate: AnyCard | None, book: PriceBook) -> GroupCost | None:
    """Return what a group costs by the card; `None` if it keeps its recorded price."""
    if group.is_kept_answer or group.state == "failed":
        return None
    if candidate is None:
        card = card_for(group, book)
    elif is_for(candidate, group):
        card = candidate.at_tier(group.tier)
    else:
        return None
    cost = price_group(group, card)
    return None if cost.total_pico_usd is None else cost


def _effect(group: UsageGroup, cost: GroupCost) -> Effect:
    amount = (cost.total_pico_usd or 0) - group.cost_pico_usd
    was_unpriced = group.requests if group.state == "unpriced" else 0
    was_partly = group.requests if group.state == "partly_unpriced" else 0
    is_partly = group.requests if cost.unpriced else 0
    missing = LEAVES if was_unpriced else tuple(leaf for leaf in LEAVES if was_partly and leaf in group.unpriced_leaves)
    tokens_in, tokens_out = _tokens(group, missing)
    still_in, still_out = _tokens(group, cost.unpriced)
    return Effect(
        amount,
        -was_unpriced,
        is_partly - was_partly,
        still_in - tokens_in,
        still_out - tokens_out,
        amount if group.is_estimated else 0,
        was_unpriced if group.is_estimated else 0,
    )


def _tokens(group: UsageGroup, leaves: Iterable[str]) -> tuple[int, int]:
    """Return how many input and output tokens a group has of some kinds."""
    counted = [(leaf, group.tokens[LEAVES.index(leaf)]) for leaf in leaves]
    given = sum(count for leaf, count in counted if leaf in INPUT_LEAVES)
    return given, sum(count for _, count in counted) - given
