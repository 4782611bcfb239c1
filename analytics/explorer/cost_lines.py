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
    """Usage of one kind. `cost_usd` is `None` without a known price; `tokens` is `None` for a fee."""

    leaf: str
    tokens: int | None
    cost_usd: Decimal | None

    @property
    def unit(self) -> str:
        """Return the pricing unit: "image", "second", ...; "" means a million tokens."""
        return unit_of(self.leaf)[0]

    @property
    def usd_per_unit(self) -> Decimal | None:
        """Return the rate in USD per unit (or per million tokens); `None` if it is unknown or nothing was used."""
        if not self.tokens or self.cost_usd is None:
            return None
        return self.cost_usd * unit_of(self.leaf)[1] / self.tokens

    @property
    def usd_per_mtok(self) -> Decimal | None:
        """Return the rate in USD per million tokens; `None` if it is unknown or there were no tokens."""
        if not self.tokens or self.cost_usd is None:
            return None
        return self.cost_usd * 1_000_000 / self.tokens


@dataclass(frozen=True, slots=True)
class CostLines:
    """The lines, and the rest of the recorded cost that they do not explain (`None` if unknown).

    There is a rest if the price card was deleted, for cached responses (priced by a policy), and for additional
    attempts.
    """

    total_usd: Decimal | None
    lines: tuple[CostLine, ...]
    rest_usd: Decimal | None
    missing: str = ""  # one sentence on usage without a price, with a remedy; "" if there is none


def cost_lines(request: SingleRequest, cards: Iterable[AnyCard]) -> CostLines:
    """Split a request's cost by the price card that its record names. Lines and rest sum to the total."""
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
    """Return a sentence on a request's usage without a price, with a remedy; "" if there is none, or it is unknown."""
    labels, model = request.labels, request.labels["model"]
    if request.unpriced_leaves:
        kinds = ", ".join(request.unpriced_leaves)
        return (
            f"No price for {kinds} on the price card {labels['price_version'] or 'of ' + model}: those tokens are "
            f"not billed. Replace the card by one that prices {kinds}."
        )
    if request.cost_usd is None and labels["service_tier"] not in ("", BATCH) and labels["cost_basis"] == "unpriced":
        return (
            f"No price for the service tier {labels['service_tier']!r} of {model}: the request is not billed. "
            "Replace its price card by one with prices for this tier (service_tiers)."
        )
    if request.cost_usd is None and labels["cost_basis"] == "unpriced" and labels["outcome"] == "ok":
        return (
            f"No price card is valid for {model} of {labels['provider']}: the request is not billed. Add a price card."
        )
    return ""
