"""Reads the evidence for recommendations: usage by tenant and model, and replicas by hour."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from analytics.prices.usage_groups import own_regions, thresholds_of
from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period
from backends.store.client import Row, StoreClient
from contracts.pricing.prices import AnyCard
from contracts.serving.rollouts import PLATFORM_TENANT

_MOST_LINES: Final = 10_000


CardOf = Callable[["Slice"], AnyCard | None]


@dataclass(frozen=True, slots=True)
class Slice:
    """Requests that every price card prices alike: their number, and their uncached input, cached input and output
    tokens.

    `tier` is their service tier. `input_tokens` is the prompt length of one of them, which selects the same price tier
    for long prompts as that of all.
    """

    requests: int
    fresh: int
    cached: int
    produced: int
    tier: str = ""
    input_tokens: int = 0

    def at(self, card: AnyCard) -> int | None:
        """Return the cost by a card at its service tier, in pico-USD; `None` if the card has no price."""
        total = self.requests * card.request_pico_usd
        for rate, tokens in (
            (card.rate("input_text", self.input_tokens), self.fresh),
            (hit_rate(card, self.input_tokens), self.cached),
            (card.rate("output_text", self.input_tokens), self.produced),
        ):
            if rate is None:
                if tokens:
                    return None
                continue
            total += tokens * rate
        return total


@dataclass(frozen=True, slots=True)
class Part:
    """Requests, in slices with equal unit prices."""

    slices: tuple[Slice, ...] = ()

    @property
    def requests(self) -> int:
        """Return the number of requests."""
        return sum(one.requests for one in self.slices)

    @property
    def fresh(self) -> int:
        """Return the number of uncached input tokens."""
        return sum(one.fresh for one in self.slices)

    @property
    def cached(self) -> int:
        """Return the number of cached input tokens."""
        return sum(one.cached for one in self.slices)

    @property
    def produced(self) -> int:
        """Return the number of output tokens."""
        return sum(one.produced for one in self.slices)

    def at(self, card_of: CardOf) -> int | None:
        """Return the cost of all slices (pico-USD) by the cards of `card_of`; `None` if one has no price."""
        total = 0
        for one in self.slices:
            card = card_of(one)
            price = None if card is None else one.at(card)
            if price is None:
                return None
            total += price
        return total


@dataclass(frozen=True, slots=True)
class Repeated:
    """Uncached input repeated from the previous turn: number of turns and of tokens."""

    turns: int
    tokens: int
    slice: Slice


@dataclass(frozen=True, slots=True)
class Use:
    """A tenant's use of a model at a provider, and its small, non-interactive and repeated parts.

    `region` is empty unless a card is for that region.
    """

    tenant: str
    model: str
    provider: str
    region: str
    all: Part
    small: Part
    patient: Part
    repeated: tuple[Repeated, ...] = ()


def hit_rate(card: AnyCard, input_tokens: int) -> int | None:
    """Return a card's pico-USD per cached input token: that of input if it has no price for cache hits."""
    rate = card.rate("cache_read_text", input_tokens)
    return card.rate("input_text", input_tokens) if rate is None else rate


@dataclass(frozen=True, slots=True)
class ReplicaHour:
    """One hour of a replica: busy share of time, and maximum queue length."""

    model: str
    replica: str
    hour: int
    busy_share: float
    waiting: int
    ranks: int


def read_uses(store: StoreClient, period: Period, cards: Sequence[AnyCard], tenant: str | None = None) -> list[Use]:
    """Read the use of a period, most expensive first, in slices with equal unit prices by each of `cards`. Raises
    StoreUnavailable.

    Copies to a rollout's candidate are left out.
    """
    thresholds = thresholds_of(cards)
    parameters = {
        "start": period.start_s,
        "end": period.end_s,
        "tenant": tenant,
        "own_regions": own_regions(cards),
        "thresholds": thresholds,
        "row_limit": _MOST_LINES,
    }
    found: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in store.query(query("saving_evidence"), parameters):
        tenant_label, model = text_of(row["tenant_label"]), text_of(row["model_label"])
        provider, region = text_of(row["provider_label"]), text_of(row["region_label"])
        found.setdefault((tenant_label, model, provider, region), []).append(row)
    return [_use(name, rows, thresholds) for name, rows in found.items() if name[0] != PLATFORM_TENANT]


def read_replica_hours(store: StoreClient, period: Period) -> list[ReplicaHour]:
    """Read the load of all tenants' replicas by hour. Raises StoreUnavailable."""
    rows = store.query(query("replica_hours"), {"start": period.start_s, "end": period.end_s})
    return [
        ReplicaHour(
            text_of(row["model_label"]),
            text_of(row["replica_label"]),
            number_of(row["hour_start"]),
            number_of(row["busy_sum"]) / 3.6e12,
            number_of(row["waiting_most"]),
            max(int(float(str(row["ranks"]))), 1),
        )
        for row in rows
    ]


def _use(name: tuple[str, str, str, str], rows: Sequence[Row], thresholds: Sequence[int]) -> Use:
    return Use(
        *name,
        all=_part(rows, thresholds, "request_count", "fresh_sum", "cached_sum", "produced_sum"),
        small=_part(rows, thresholds, "small_count", "small_fresh", "small_cached", "small_produced"),
        patient=_part(rows, thresholds, "patient_count", "patient_fresh", "patient_cached", "patient_produced"),
        repeated=tuple(
            Repeated(number_of(row["later_turns"]), number_of(row["repeated_sum"]), _slice(row, thresholds, ()))
            for row in rows
            if number_of(row["later_turns"])
        ),
    )


def _part(rows: Sequence[Row], thresholds: Sequence[int], *names: str) -> Part:
    slices = (_slice(row, thresholds, names) for row in rows)
    return Part(tuple(one for one in slices if one.requests))


def _slice(row: Row, thresholds: Sequence[int], names: Sequence[str]) -> Slice:
    requests, fresh, cached, produced = (number_of(row[name]) for name in names) if names else (0, 0, 0, 0)
    above = number_of(row["tier_number"])
    return Slice(
        requests,
        fresh,
        cached,
        produced,
        text_of(row["service_tier_label"]),
        thresholds[above - 1] + 1 if above else 0,
    )
