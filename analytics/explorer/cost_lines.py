"""A request's cost by usage kind, at the rates of the card that priced it."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import cast

from analytics.explorer.single_request import SingleRequest
from contracts.metering.usage import LEAVES
from contracts.pricing.money import pico_usd, usd
from contracts.pricing.prices import AnyCard, bill, card_of_version
from contracts.pricing.service_tiers import BATCH
from contracts.pricing.unit_prices import unit_of

REQUEST_FEE = "request"


@dataclass(frozen=True, slots=True)
class CostLine:
    """Usage of one kind. `cost_usd` is `None` if no card is known that prices them; `tokens` of a fee too."""

    leaf: str
    tokens: int | None
    cost_usd: Decimal | None

    @property
    def unit(self) -> str:
        """Return what it is sold by: "image", "second", ...; empty: a million tokens."""
        return unit_of(self.leaf)[0]

    @property
    def usd_per_unit(self) -> Decimal | None:
        """Return the rate in USD per unit, or million tokens; `None` if it is not known, or nothing was used."""
        if not self.tokens or self.cost_usd is None:
            return None
        return self.cost_usd * unit_of(self.leaf)[1] / self.tokens

    @property
    def usd_per_mtok(self) -> Decimal | None:
        """Return the rate in USD per million tokens; `None` if it is not known, or there were no tokens."""
        if not self.tokens or self.cost_usd is None:
            return None
        return self.cost_usd * 1_000_000 / self.tokens


@dataclass(frozen=True, slots=True)
class CostLines:
    """The lines, and what of the recorded cost they do not explain (`None` if it or they are unknown).

    A rest is there where the card was not kept, a kept answer was sold at a policy's price, or further tries cost.
    """

    total_usd: Decimal | None
    lines: tuple[CostLine, ...]
    rest_usd: Decimal | None
    missing: str = ""  # what has no price, and what to do, in one sentence; empty: nothing is missing


def cost_lines(request: SingleRequest, cards: Iterable[AnyCard]) -> CostLines:
    """Split a request's cost with the card whose version its record names. Lines and rest sum to the total."""
    card = card_of_version(request.labels["price_version"], {card.version: card for card in cards})
    cost = bill(request.usage, request.labels["operation"], card)
    lines = [
        CostLine(leaf, tokens, usd(cost.parts[leaf]) if leaf in cost.parts else None)
        for leaf in LEAVES
        if (tokens := cast("int | None", getattr(request.usage, leaf)))
    ]
    if REQUEST_FEE in cost.parts:
        lines.append(CostLine(REQUEST_FEE, None, usd(cost.parts[REQUEST_FEE])))
    explained = sum(cost.parts.get(line.leaf, 0) for line in lines)
    rest = None if request.cost_usd is None else usd(pico_usd(request.cost_usd) - explained)
    return CostLines(request.cost_usd, tuple(lines), rest, _missing(request))


def _missing(request: SingleRequest) -> str:
    """Name what of a request has no price, and what to do about it; empty if all of it has one, or is not known."""
    labels, model = request.labels, request.labels["model"]
    if request.unpriced_leaves:
        kinds = ", ".join(request.unpriced_leaves)
        return (
            f"No price for {kinds} on the price card {labels['price_version'] or 'of ' + model}: those tokens are on "
            f"no bill. Replace the card by one that prices {kinds}."
        )
    if request.cost_usd is None and labels["service_tier"] not in ("", BATCH) and labels["cost_basis"] == "unpriced":
        return (
            f"No price for the service tier {labels['service_tier']!r} of {model}: the request is on no bill. "
            "Replace its price card by one with prices for this tier (service_tiers)."
        )
    if request.cost_usd is None and labels["cost_basis"] == "unpriced" and labels["outcome"] == "ok":
        return f"No price card holds for {model} of {labels['provider']}: the request is on no bill. Add a price card."
    return ""
