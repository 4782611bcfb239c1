"""Dated price cards, standard cost cards, and the pure function that prices usage with either.

A card is immutable and has a version; the version is written on every row that it priced, so a bill can be recomputed
later. Prices are USD per million tokens, stored as integer pico-USD per token; prices of other units are stored the
same way (`unit_prices.py`). A card may have prices for service tiers (`flex`, `priority`, ...), including batches and
kinds of images: rows priced with them name the version followed by the tier, such as `#batch`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, Literal, Protocol

import msgspec
from msgspec.structs import astuple

from contracts.errors import ConfigurationError
from contracts.metering.plain_counts import plain_counts
from contracts.metering.usage import CACHE_READ_LEAVES, INPUT_LEAVES, LEAVES, UNIT_LEAVES, Leaf, Usage
from contracts.pricing.money import pico_usd, pico_usd_per_token
from contracts.pricing.service_tiers import (
    ANY_TIER,
    BATCH,
    MAX_TIER_LENGTH,
    STANDARD_TIERS,
    UNDECIDED,
    VARIANT_MARK,
    nearest_variant,
    tier_name,
)

# "free": the request failed in a way that costs nothing. "unknown_usage": there is a price, but the usage is unknown.
# "unpriced": no card is valid, or the card prices nothing of what was used. If it prices some kinds of tokens, the cost
# is theirs, the basis is the card's, and the record names the other kinds in `unpriced_leaves`.
CostBasis = Literal["price_card", "standard_card", "unpriced", "free", "unknown_usage"]

# The price of a leaf without its own price on a card: that of the leaf that it is a kind of. Cached input is NOT here
# for price cards: we do not assume that a provider without a cache price sells it at full price; it is unpriced and
# visible. All known providers bill reasoning as output.
_PRICED_AS: Final[dict[Leaf, Leaf]] = {"output_reasoning": "output_text"}

BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)  # of a card without a start
_LONG_AGO_NS: Final = -(1 << 100)
_FAR_OFF_NS: Final = 1 << 100
TIER_MARK: Final = "#"  # between a card's version and the service tier, on rows that the tier's prices priced
BATCH_MARK: Final = TIER_MARK + BATCH
# values of gen_ai.operation.name without output tokens
INPUT_ONLY_OPERATIONS: Final = frozenset({"embeddings", "rerank", "score"})


class Cost(msgspec.Struct, frozen=True, gc=False):
    """The cost of usage under one card, in pico-USD.

    `total_pico_usd` is the sum of `parts`; `None` if nothing that was used has a price: unknown is not zero. `unpriced`
    names the used leaves without a price, which are not in the sum. `parts` includes `request` for a fee per request.
    `tier` is the service tier it was priced at, even if that has no price; empty: the standard one.
    """

    total_pico_usd: int | None
    parts: Mapping[str, int]
    unpriced: tuple[Leaf, ...]
    version: str
    basis: CostBasis
    tier: str = ""


class Card(Protocol):
    """The part of a card that `cost_of` uses."""

    @property
    def version(self) -> str: ...
    @property
    def basis(self) -> CostBasis: ...
    @property
    def request_pico_usd(self) -> int: ...
    def rate(self, leaf: Leaf, input_tokens: int | None) -> int | None:
        """Return pico-USD per token, or `None` if the card does not price this leaf.

        `input_tokens` is the whole request's input, `None` if it is unknown.
        """


@dataclass(frozen=True, slots=True)
class Tier:
    """Prices that apply to the whole request once its input exceeds `above_input_tokens` (a cliff)."""

    above_input_tokens: int
    rates: Mapping[Leaf, int]
    service_tiers: Mapping[str, Mapping[Leaf, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.above_input_tokens < 0:
            raise ConfigurationError(f"a tier's threshold must be >= 0 tokens, not {self.above_input_tokens}")


@dataclass(frozen=True, slots=True)
class PriceCard:
    """What a model costs by list price or contract, from `valid_from` until `valid_to` (exclusive, UTC).

    `rates` are pico-USD per token by leaf. `tiers` override them above their thresholds. `service_tiers`, of the card
    and of its tiers, replace these for requests served at that tier, such as "flex" or (for requests of a batch)
    "batch"; a leaf that is missing there keeps its price. "*" means all tiers that are not named.
    """

    model: str
    version: str
    valid_from: datetime
    rates: Mapping[Leaf, int]
    valid_to: datetime | None = None
    tiers: tuple[Tier, ...] = ()
    request_pico_usd: int = 0
    provider: str = ""  # empty: valid for every provider
    tenant: str = ""  # empty: valid for every tenant
    region: str = ""  # of the targets whose answers it prices; empty: every region
    service_tiers: Mapping[str, Mapping[Leaf, int]] = field(default_factory=dict)
    basis: CostBasis = field(default="price_card", init=False)

    def __post_init__(self) -> None:
        _check_validity(self.version, self.valid_from, self.valid_to)
        _check_rates(self.version, self.rates)
        for tier in self.tiers:
            _check_rates(self.version, tier.rates)
        for by_tier in (self.service_tiers, *(tier.service_tiers for tier in self.tiers)):
            for name, rates in by_tier.items():
                _check_tier_name(self.version, name)
                _check_rates(self.version, rates)
        if len({tier.above_input_tokens for tier in self.tiers}) < len(self.tiers):
            raise ConfigurationError(f"card {self.version!r} has two tiers with the same threshold; join them")
        if self.request_pico_usd < 0:
            raise ConfigurationError(f"card {self.version!r}: the price per request must be >= 0")
        object.__setattr__(self, "tiers", tuple(sorted(self.tiers, key=lambda tier: -tier.above_input_tokens)))

    def rate(self, leaf: Leaf, input_tokens: int | None) -> int | None:
        """Return pico-USD per token of a leaf for a request with this many input tokens.

        `None` also if tiers price the leaf and the input is unknown: any tier would be a guess.
        """
        for tier in self.tiers:  # highest threshold first
            if leaf not in tier.rates:
                continue
            if input_tokens is None:
                return None
            if input_tokens > tier.above_input_tokens:
                return tier.rates[leaf]
        return self.rates.get(leaf)

    @property
    def tier_names(self) -> frozenset[str]:
        """Return the service tiers with their own prices, here or above a threshold."""
        return frozenset(self.service_tiers).union(*(tier.service_tiers for tier in self.tiers))

    def at_tier(self, name: str) -> "PriceCard | None":
        """Return the card that prices requests served at a service tier; `None` if the tier has no price.

        Batches, and kinds of images, have the standard price if the card has none for them. An empty name is the
        standard tier.
        """
        named = self.tier_names
        if name.startswith(VARIANT_MARK):
            name = nearest_variant(name, named)
        if not name or (name == BATCH and BATCH not in named):
            return self
        if name not in named and ANY_TIER not in named:
            return None
        found = name if name in named else ANY_TIER
        return replace(
            self,
            version=self.version + TIER_MARK + name,
            rates={**self.rates, **self.service_tiers.get(found, {})},
            tiers=tuple(
                Tier(tier.above_input_tokens, {**tier.rates, **tier.service_tiers.get(found, {})})
                for tier in self.tiers
            ),
            service_tiers={},
        )

    def is_valid_at(self, moment: datetime) -> bool:
        """Return whether the card is valid at this time (UTC)."""
        return self.valid_from <= moment and (self.valid_to is None or moment < self.valid_to)


@dataclass(frozen=True, slots=True)
class StandardCostCard:
    """The standard cost per token of a self-hosted model: set by the operator or fitted to GPU cost.

    Three rates, in pico-USD per token: uncached input, cached input, output. The batch rates replace them for requests
    of a batch; `None`: the standard rate applies.
    """

    model: str
    version: str
    valid_from: datetime
    input_rate: int
    cached_input_rate: int
    output_rate: int
    valid_to: datetime | None = None
    request_pico_usd: int = field(default=0, init=False)
    provider: str = ""
    tenant: str = ""
    region: str = ""
    batch_input_rate: int | None = None
    batch_cached_input_rate: int | None = None
    batch_output_rate: int | None = None
    basis: CostBasis = field(default="standard_card", init=False)

    def __post_init__(self) -> None:
        _check_validity(self.version, self.valid_from, self.valid_to)
        for name in ("input_rate", "cached_input_rate", "output_rate"):
            for named in (name, f"batch_{name}"):
                if (getattr(self, named) or 0) < 0:
                    raise ConfigurationError(f"standard card {self.version!r}: {named} must be >= 0")

    def rate(self, leaf: Leaf, input_tokens: int | None) -> int | None:
        """Return pico-USD per token: cache reads at the cached rate, all other input at the uncached one."""
        if leaf in CACHE_READ_LEAVES:
            return self.cached_input_rate
        if leaf in UNIT_LEAVES:
            return None
        return self.input_rate if leaf in INPUT_LEAVES else self.output_rate

    @property
    def tier_names(self) -> frozenset[str]:
        """Return the service tiers with their own prices: only batches can have them."""
        own = (self.batch_input_rate, self.batch_cached_input_rate, self.batch_output_rate)
        return frozenset() if own == (None, None, None) else frozenset((BATCH,))

    def at_tier(self, name: str) -> "StandardCostCard":
        """Return the card that prices requests served at a service tier: a self-hosted model has none but batches."""
        if name != BATCH:
            return self
        rates = (self.batch_input_rate, self.batch_cached_input_rate, self.batch_output_rate)
        if rates == (None, None, None):
            return self
        own = (self.input_rate, self.cached_input_rate, self.output_rate)
        tokens_in, cached, tokens_out = (
            rate if batch is None else batch for batch, rate in zip(rates, own, strict=True)
        )
        return replace(
            self,
            version=self.version + BATCH_MARK,
            input_rate=tokens_in,
            cached_input_rate=cached,
            output_rate=tokens_out,
            batch_input_rate=None,
            batch_cached_input_rate=None,
            batch_output_rate=None,
        )

    def is_valid_at(self, moment: datetime) -> bool:
        """Return whether the card is valid at this time (UTC)."""
        return self.valid_from <= moment and (self.valid_to is None or moment < self.valid_to)


AnyCard = PriceCard | StandardCostCard


def _check_validity(version: str, valid_from: datetime, valid_to: datetime | None) -> None:
    for name, moment in (("valid_from", valid_from), ("valid_to", valid_to)):
        if moment is not None and moment.utcoffset() is None:
            raise ConfigurationError(f"card {version!r}: {name} needs a time zone, use UTC")
    if valid_to is not None and valid_to <= valid_from:
        raise ConfigurationError(f"card {version!r} ends ({valid_to}) before it begins ({valid_from})")


def _check_tier_name(version: str, name: str) -> None:
    if name == ANY_TIER or (name and name == tier_name(name) and name != UNDECIDED):
        return
    if name in STANDARD_TIERS or name == UNDECIDED:
        raise ConfigurationError(
            f"card {version!r} has prices for the service tier {name!r}, which is the standard one; "
            "put them into usd_per_mtok"
        )
    raise ConfigurationError(
        f"card {version!r} has prices for the service tier {name[:60]!r}; use up to {MAX_TIER_LENGTH} small letters, "
        "digits, '_', '.' and '-', or '*' for every tier that is not named"
    )


def _check_rates(version: str, rates: Mapping[Leaf, int]) -> None:
    for leaf, rate in rates.items():
        if leaf not in LEAVES:
            raise ConfigurationError(f"card {version!r} prices {leaf!r}, which is not a usage leaf")
        if rate < 0:
            raise ConfigurationError(f"card {version!r}: the price of {leaf} must be >= 0, not {rate}")


def cost_of(usage: Usage, card: Card) -> Cost:
    """Price usage with a card, exactly, in integer pico-USD.

    Example: 1,000 uncached input tokens at 0.15 and 200 output tokens at 0.60 USD per million tokens
    -> 150,000,000 + 120,000,000 = 270,000,000 pico-USD = 0.00027 USD.
    """
    parts: dict[str, int] = {}
    unpriced: list[Leaf] = []
    priced: list[Leaf] = []
    input_tokens = usage.input_tokens
    for leaf, tokens in zip(LEAVES, astuple(usage), strict=True):
        if tokens is None:
            continue
        rate = card.rate(leaf, input_tokens)
        if rate is None and leaf in _PRICED_AS:
            rate = card.rate(_PRICED_AS[leaf], input_tokens)
        if rate is not None:
            parts[leaf] = tokens * rate
            if tokens:
                priced.append(leaf)
        elif tokens:
            unpriced.append(leaf)
    if card.request_pico_usd:
        parts["request"] = card.request_pico_usd
    if not usage.is_known:
        return Cost(None, parts, (), card.version, card.basis)
    if unpriced and not priced and not card.request_pico_usd:
        return Cost(None, {}, tuple(unpriced), card.version, "unpriced")
    missing = missing_prices(unpriced, priced, has_fee=bool(card.request_pico_usd)) if unpriced else ()
    return Cost(sum(parts.values()), parts, missing, card.version, card.basis)


def missing_prices(unpriced: Sequence[Leaf], priced: Sequence[Leaf], *, has_fee: bool) -> tuple[Leaf, ...]:
    """Return the used leaves without a price that should have one.

    Units and tokens measure the same work twice, and a card sells it by one of them, or by the request: a unit that it
    does not sell by lacks no price.
    """
    by_units = any(leaf in UNIT_LEAVES for leaf in priced)
    by_tokens = any(leaf not in UNIT_LEAVES for leaf in priced)
    if by_units and not by_tokens:
        return tuple(leaf for leaf in unpriced if leaf in UNIT_LEAVES)
    if not by_units and (by_tokens or has_fee):
        return tuple(leaf for leaf in unpriced if leaf not in UNIT_LEAVES)
    return tuple(unpriced)


UNPRICED: Final = Cost(total_pico_usd=None, parts={}, unpriced=(), version="", basis="unpriced")
FREE_OF_CHARGE: Final = Cost(total_pico_usd=0, parts={}, unpriced=(), version="", basis="free")
UNKNOWN_COST: Final = Cost(total_pico_usd=None, parts={}, unpriced=(), version="", basis="unknown_usage")


def card_of_version(version: str, cards: Mapping[str, AnyCard]) -> AnyCard | None:
    """Find the card that a record's price version names, at the service tier that the version names."""
    card = cards.get(version)
    if card is not None:
        return card
    own, mark, tier = version.rpartition(TIER_MARK)
    card = cards.get(own) if mark else None
    return None if card is None else card.at_tier(tier)


def tier_of_version(version: str) -> str:
    """Return the service tier in a record's price version, as far as its last mark shows it."""
    return version.rpartition(TIER_MARK)[2] if TIER_MARK in version else ""


def is_billable(usage: Usage, operation: str) -> bool:
    """Return whether all of a request's usage is known: partial usage would give a partial price that looks complete.

    `operation` is `gen_ai.operation.name`; embeddings have no output and need only their input. Usage counted in units
    needs no tokens.
    """
    return usage.has_units or (usage.has_input and (usage.has_output or operation in INPUT_ONLY_OPERATIONS))


def bill(usage: Usage, operation: str, card: Card | None) -> Cost:
    """Price one request's whole usage; `UNPRICED` if it is only partly known or no card is valid."""
    if card is None:
        return UNPRICED
    plain = plain_counts(usage)
    if plain is not None and not card.request_pico_usd:
        return _plain_cost(*plain, usage, card)
    return cost_of(usage, card) if is_billable(usage, operation) else UNPRICED


def _plain_cost(tokens_in: int, tokens_out: int, usage: Usage, card: Card) -> Cost:
    """Price text input and text output, as `cost_of` does."""
    input_rate, output_rate = card.rate("input_text", tokens_in), card.rate("output_text", tokens_in)
    if input_rate is None or output_rate is None:
        return cost_of(usage, card)
    paid_in, paid_out = tokens_in * input_rate, tokens_out * output_rate
    parts = {"input_text": paid_in, "output_text": paid_out}
    return Cost(paid_in + paid_out, parts, (), card.version, card.basis)


class PriceBook:
    """All cards, found by model, tenant, provider, region and time.

    A tenant's own card precedes the general one; of these, the provider's own precedes the one for any provider; of
    these, the one for the target's region precedes the one for any region. Raises ConfigurationError if two cards have
    one version, or are valid at once for the same.
    """

    def __init__(self, cards: Iterable[AnyCard] = ()) -> None:
        self._cards: dict[tuple[str, str, str, str], list[AnyCard]] = {}
        versions: set[str] = set()
        marked: set[str] = set()
        for card in cards:
            if card.version in versions:
                raise ConfigurationError(
                    f"two cards have the version {card.version!r}; usage rows identify a card by its version alone: "
                    "give each its own"
                )
            if card.version.endswith(BATCH_MARK):
                raise ConfigurationError(
                    f"the version {card.version!r} ends with {BATCH_MARK!r}, which marks what a card's batch prices "
                    "priced; choose another"
                )
            versions.add(card.version)
            marked.update(card.version + TIER_MARK + tier for tier in card.tier_names)
            self._cards.setdefault((card.model, card.provider, card.tenant, card.region), []).append(card)
        for version in versions & marked:
            raise ConfigurationError(
                f"the version {version!r} is also what another card's service tier is recorded as; choose another"
            )
        for cards_of_one in self._cards.values():
            cards_of_one.sort(key=lambda card: card.valid_from)
            _check_disjoint(cards_of_one)
        moments = [moment for card in self.cards for moment in (card.valid_from, card.valid_to) if moment is not None]
        self._changes_ns = sorted({_unix_ns(moment) for moment in moments})

    @property
    def cards(self) -> list[AnyCard]:
        """Return all cards."""
        return [card for cards_of_one in self._cards.values() for card in cards_of_one]

    def unchanged_around(self, unix_ns: int) -> tuple[int, int]:
        """Return the period around a time in which no card starts or ends: start, and exclusive end."""
        place = bisect_right(self._changes_ns, unix_ns)
        return (
            self._changes_ns[place - 1] if place else _LONG_AGO_NS,
            self._changes_ns[place] if place < len(self._changes_ns) else _FAR_OFF_NS,
        )

    def card_for(
        self, model: str, tenant: str, moment: datetime, provider: str = "", region: str = ""
    ) -> AnyCard | None:
        """Find the card valid at a time (UTC), or `None`: the usage is then unpriced, not free.

        `region` is the target's; empty: unknown, which only cards for any region price.
        """
        for owner in (tenant, "") if tenant else ("",):
            for seller in (provider, "") if provider else ("",):
                for place in (region, "") if region else ("",):
                    for card in reversed(self._cards.get((model, seller, owner, place), ())):
                        if card.is_valid_at(moment):
                            return card
        return None


def _unix_ns(moment: datetime) -> int:
    return (moment - BEGINNING) // timedelta(microseconds=1) * 1000


def _check_disjoint(cards: list[AnyCard]) -> None:
    for earlier, later in zip(cards, cards[1:], strict=False):
        if earlier.valid_to is not None and earlier.valid_to <= later.valid_from:
            continue
        both = f"price cards {earlier.version!r} and {later.version!r} of model {earlier.model!r} overlap"
        if earlier.valid_from == later.valid_from:  # no end of the first could come before the start of the second
            raise ConfigurationError(
                f"{both}: both start at {later.valid_from.isoformat()}; remove one of them or let it start later, "
                "after the other's valid_to"
            )
        raise ConfigurationError(f"{both}; end the first with valid_to <= {later.valid_from.isoformat()}")


@dataclass(frozen=True, slots=True)
class NewPrice:
    """A price card as written by people: USD per million tokens by usage leaf, tiers above a number of input tokens."""

    model: str
    version: str
    usd_per_mtok: Mapping[Leaf, Decimal]
    valid_from: datetime = BEGINNING
    valid_to: datetime | None = None
    tiers: Sequence[tuple[int, Mapping[Leaf, Decimal]]] = ()
    usd_per_request: Decimal = field(default=Decimal(0))
    provider: str = ""
    tenant: str = ""
    region: str = ""
    batch_usd_per_mtok: Mapping[Leaf, Decimal] = field(default_factory=dict)
    batch_tiers: Mapping[int, Mapping[Leaf, Decimal]] = field(default_factory=dict)  # by the tier's threshold
    service_tiers: Mapping[str, Mapping[Leaf, Decimal]] = field(default_factory=dict)  # by name, such as "flex"
    service_tiers_above: Mapping[int, Mapping[str, Mapping[Leaf, Decimal]]] = field(default_factory=dict)


def price_card(new: NewPrice) -> PriceCard:
    """Build a price card. Raise ConfigurationError naming the leaf, or the fee per request, whose price is negative or
    too fine.
    """
    return PriceCard(
        model=new.model,
        version=new.version,
        valid_from=new.valid_from,
        valid_to=new.valid_to,
        rates=_rates(new.version, new.usd_per_mtok),
        tiers=tuple(
            Tier(
                threshold,
                _rates(new.version, rates),
                _by_tier(new.version, new.service_tiers_above.get(threshold, {}), new.batch_tiers.get(threshold, {})),
            )
            for threshold, rates in new.tiers
        ),
        request_pico_usd=_fee(new.version, new.usd_per_request),
        provider=new.provider,
        tenant=new.tenant,
        region=new.region,
        service_tiers=_by_tier(new.version, new.service_tiers, new.batch_usd_per_mtok),
    )


def _by_tier(
    version: str, tiers: Mapping[str, Mapping[Leaf, Decimal]], batch: Mapping[Leaf, Decimal]
) -> dict[str, Mapping[Leaf, int]]:
    """Build the rates by service tier. A tier without its own rates uses the card's; batches then need no tier."""
    found: dict[str, Mapping[Leaf, int]] = {name: _rates(version, rates) for name, rates in tiers.items()}
    if batch:
        found[BATCH] = _rates(version, batch)
    return found


def _fee(version: str, usd_per_request: Decimal) -> int:
    try:
        return pico_usd(usd_per_request)
    except ValueError as error:
        raise ConfigurationError(f"card {version!r}, fee per request: {error}") from error


def _rates(version: str, usd_per_mtok: Mapping[Leaf, Decimal]) -> dict[Leaf, int]:
    rates: dict[Leaf, int] = {}
    for leaf, price in usd_per_mtok.items():
        try:
            rates[leaf] = pico_usd_per_token(price)
        except ValueError as error:
            raise ConfigurationError(f"card {version!r}, {leaf}: {error}") from error
    return rates
