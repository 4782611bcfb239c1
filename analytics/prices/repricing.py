"""Computes the cost of usage by other price cards, without changing recorded prices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from analytics.cost.question import CostQuestion
from analytics.prices.usage_groups import LEVELS, UsageGroup, usage_groups
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest
from contracts.metering.usage import CACHE_WRITE_LEAVES, LEAVES, Leaf
from contracts.pricing.money import usd
from contracts.pricing.prices import AnyCard, PriceBook, missing_prices


@dataclass(frozen=True, slots=True)
class GroupCost:
    """Cost of a group by a card: pico-USD by meter and for requests.

    The total is the sum of the parts, `None` if no used meter has a price; `unpriced` are the used meters without one.
    """

    total_pico_usd: int | None
    parts: Mapping[str, int]
    version: str = ""
    unpriced: tuple[Leaf, ...] = ()


@dataclass(frozen=True, slots=True)
class RepricedLine:
    """One group in one period: recorded and recomputed cost. Requests without a price are in neither sum."""

    path: tuple[str, ...]
    period: Period
    requests: int
    recorded_pico_usd: int
    repriced_pico_usd: int
    recorded_unpriced_requests: int
    repriced_unpriced_requests: int
    repriced_unpriced_tokens: int

    @property
    def difference_pico_usd(self) -> int:
        """Return recomputed minus recorded cost."""
        return self.repriced_pico_usd - self.recorded_pico_usd

    def __add__(self, other: "RepricedLine") -> "RepricedLine":
        """Return the sum with another group's figures, with this group's path and period."""
        return replace(
            self,
            requests=self.requests + other.requests,
            recorded_pico_usd=self.recorded_pico_usd + other.recorded_pico_usd,
            repriced_pico_usd=self.repriced_pico_usd + other.repriced_pico_usd,
            recorded_unpriced_requests=self.recorded_unpriced_requests + other.recorded_unpriced_requests,
            repriced_unpriced_requests=self.repriced_unpriced_requests + other.repriced_unpriced_requests,
            repriced_unpriced_tokens=self.repriced_unpriced_tokens + other.repriced_unpriced_tokens,
        )


@dataclass(frozen=True, slots=True)
class Repricing:
    """Repriced lines by path and period, and their sum."""

    question: CostQuestion
    lines: tuple[RepricedLine, ...]

    @property
    def total(self) -> RepricedLine:
        """Return the sum of all lines."""
        question = self.question
        nothing = RepricedLine((), Period(question.start, question.end), 0, 0, 0, 0, 0, 0)
        return sum(self.lines, nothing)


def reprice(
    store: StoreClient, question: CostQuestion, cards: Iterable[AnyCard], candidate: AnyCard | None = None
) -> Repricing:
    """Compute the cost of a question's requests by `cards`, with `candidate` instead of the cards of its model (and
    tenant or provider, if it has them) at all times.

    Answers from the response cache keep their price, which is set by a policy. Batch requests are recognised by their
    recorded price; those without one are priced as normal requests. Raises InvalidRequest for an unknown level, or if
    the requests are no longer stored.
    """
    for level in question.by:
        if level not in LEVELS:
            raise InvalidRequest(f"repricing has no level {level!r}; choose of {', '.join(LEVELS)}", param="by")
    known = list(cards)
    book = PriceBook(known)
    used = known if candidate is None else [*known, candidate]
    periods = {period.start_s: period for period in question.periods}
    found: dict[tuple[tuple[str, ...], int], RepricedLine] = {}
    for group in usage_groups(store, question, used):
        line = _line(group, book, candidate, question, periods[group.period_start])
        name = (line.path, group.period_start)
        found[name] = found[name] + line if name in found else line
    return Repricing(question, tuple(found[name] for name in sorted(found)))


def _line(
    group: UsageGroup, book: PriceBook, candidate: AnyCard | None, question: CostQuestion, period: Period
) -> RepricedLine:
    now: int | None
    if group.is_kept_answer or group.state == "failed":
        now, unpriced = group.cost_pico_usd, group.unpriced_requests
    else:
        card = card_for(group, book)
        if candidate is not None and is_for(candidate, group):
            card = candidate.at_tier(group.tier)
        now = price_group(group, card).total_pico_usd
        unpriced = group.requests if now is None else 0
    labels = {**{name: getattr(group, name) for name in LEVELS if name != "price"}, "price": group.price_version}
    return RepricedLine(
        path=tuple(labels[level] for level in question.by),
        period=period,
        requests=group.requests,
        recorded_pico_usd=group.cost_pico_usd,
        repriced_pico_usd=now or 0,
        recorded_unpriced_requests=group.unpriced_requests,
        repriced_unpriced_requests=unpriced,
        repriced_unpriced_tokens=group.total_tokens if unpriced else 0,
    )


class Origin(Protocol):
    """Attributes of usage by which a card is chosen."""

    @property
    def model(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def region(self) -> str: ...


def is_for(card: AnyCard, group: Origin) -> bool:
    """Return whether a card applies to a group's model, tenant, provider and region, at any time."""
    is_sold = card.provider in ("", group.provider) and card.region in ("", group.region)
    return card.model == group.model and card.tenant in ("", group.tenant) and is_sold


def card_for(group: UsageGroup, book: PriceBook) -> AnyCard | None:
    """Return the card valid for a group and its service tier; `None` if there is none or the tier has no price."""
    card = book.card_for(group.model, group.tenant, group.at, group.provider, group.region)
    return None if card is None else card.at_tier(group.tier)


def price_group(group: UsageGroup, card: AnyCard | None) -> GroupCost:
    """Price a group's sums with one card, as `contracts.pricing.prices.bill` prices each request."""
    if card is None or not group.is_billable:
        return GroupCost(None, {})
    parts: dict[str, int] = {}
    unpriced: list[Leaf] = []
    priced: list[Leaf] = []
    for leaf, tokens, (sold_as, rate) in zip(
        LEAVES, group.tokens, rates_of(card, group.input_tokens, is_engine=group.is_engine), strict=True
    ):
        if not tokens:
            continue
        if rate is None:
            unpriced.append(leaf)
        else:
            parts[sold_as] = parts.get(sold_as, 0) + tokens * rate
            priced.append(leaf)
    if card.request_pico_usd:
        parts["request"] = card.request_pico_usd * group.requests
    if unpriced and not parts:
        return GroupCost(None, parts, card.version, tuple(unpriced))
    missing = missing_prices(unpriced, priced, has_fee=bool(card.request_pico_usd))
    return GroupCost(sum(parts.values()), parts, card.version, missing)


def rates_of(card: AnyCard, input_tokens: int | None, *, is_engine: bool) -> list[tuple[Leaf, int | None]]:
    """Return for each of LEAVES the usage kind as which it is priced, and that price in pico-USD per token (`None`: no
    price).

    A card without a price for reasoning prices it as output. On an engine host, cache writes without a price are priced
    as input.
    """
    found: list[tuple[Leaf, int | None]] = []
    for leaf in LEAVES:
        sold_as, rate = leaf, card.rate(leaf, input_tokens)
        if rate is None and leaf == "output_reasoning":
            rate = card.rate("output_text", input_tokens)
        if rate is None and leaf in CACHE_WRITE_LEAVES and is_engine:
            # Self-hosted engines' cache writes are sold as input if their card has no price for them.
            sold_as, rate = "input_text", card.rate("input_text", input_tokens)
        found.append((sold_as, rate))
    return found


def repricing_as_json(repricing: Repricing) -> dict[str, object]:
    """Return a repricing as JSON values with money as decimal text."""
    question = repricing.question
    return {
        "from": question.start.astimezone(question.zone).isoformat(),
        "to": question.end.astimezone(question.zone).isoformat(),
        "time_zone": question.zone.key,
        "by": list(question.by),
        "total": _line_as_json(repricing.total, question),
        "lines": [_line_as_json(line, question) for line in repricing.lines],
    }


def _line_as_json(line: RepricedLine, question: CostQuestion) -> dict[str, object]:
    return {
        **dict(zip(question.by, line.path, strict=False)),
        "from": line.period.start.astimezone(question.zone).isoformat(),
        "to": line.period.end.astimezone(question.zone).isoformat(),
        "requests": line.requests,
        "recorded_usd": format(usd(line.recorded_pico_usd), "f"),
        "repriced_usd": format(usd(line.repriced_pico_usd), "f"),
        "difference_usd": format(usd(line.difference_pico_usd), "f"),
        "recorded_unpriced_requests": line.recorded_unpriced_requests,
        "repriced_unpriced_requests": line.repriced_unpriced_requests,
        "repriced_unpriced_tokens": line.repriced_unpriced_tokens,
    }
