"""Computes cost per request and per number of tokens: a group's cost divided by its priced usage."""

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Final

from analytics.cost.sums import CostSum
from analytics.series import Point, Series
from contracts.pricing.money import pico_usd, usd

_THOUSAND: Final = 1_000
_MILLION: Final = 1_000_000
_PICO: Final = Decimal("0.000000000001")


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Mean costs in USD, rounded to a pico-dollar; `None` if nothing has a price.

    Failed, unknown and unpriced requests are excluded from both numerator and denominator. `per_1k_tokens` and
    `per_mtok`: cost over input and output tokens together; `per_output_mtok`: cost over output tokens.
    """

    per_request: Decimal | None
    per_1k_tokens: Decimal | None
    per_mtok: Decimal | None
    per_output_mtok: Decimal | None


def unit_costs(sums: CostSum) -> UnitCosts:
    """Return a group's unit costs. Those per token are `None` if the number of unpriced tokens is unknown."""
    cost = sums.priced_pico_usd
    tokens = output = None
    if sums.unpriced_input_tokens is not None and sums.unpriced_output_tokens is not None:
        output = sums.output_tokens - sums.unpriced_output_tokens
        tokens = sums.input_tokens - sums.unpriced_input_tokens + output
    return UnitCosts(
        per_request=_each(cost, sums.priced_requests, 1),
        per_1k_tokens=_each(cost, tokens, _THOUSAND),
        per_mtok=_each(cost, tokens, _MILLION),
        per_output_mtok=_each(cost, output, _MILLION),
    )


def _each(pico_usd: int, count: int | None, unit: int) -> Decimal | None:
    if count is None or count <= 0:
        return None
    return usd(round(Fraction(pico_usd * unit, count))).quantize(_PICO, rounding=ROUND_HALF_EVEN)


def unit_cost_over_time(over_time: Series) -> dict[str | None, tuple[Decimal | None, ...]]:
    """Return USD per million priced tokens by group and step, rounded to a pico-dollar.

    `None` if no priced token was used, or if the number of unpriced tokens is unknown.
    """
    return {group: tuple(_of_point(point) for point in points) for group, points in over_time.groups.items()}


def _of_point(point: Point) -> Decimal | None:
    tokens = point.priced_tokens
    return None if tokens is None else _each(pico_usd(point.cost_usd), tokens, _MILLION)
