"""Decomposes a change in spending into volume, mix, cache and price; the parts sum to it exactly, in integer pico-USD.

It changes one factor at a time from the reference to the actual period: first the number of requests, then models and
lengths, then the cached share of the input, then the price. Each part is the effect of its step, so there is no
residual and no double counting.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

Driver = Literal["volume", "mix", "cache", "price"]
DRIVERS: Final[tuple[Driver, ...]] = ("volume", "mix", "cache", "price")


@dataclass(frozen=True, slots=True)
class Weights:
    """Prices of cached input and of output relative to uncached input; typical values unless a card is known."""

    cached: Fraction = Fraction(1, 10)
    output: Fraction = Fraction(4)


USUAL: Final = Weights()


@dataclass(frozen=True, slots=True)
class Use:
    """One model's usage in a period: requests, tokens, and cost in pico-USD. `cached` is part of `input_tokens`."""

    requests: int
    input_tokens: int
    cached: int
    output_tokens: int
    pico_usd: int

    def __post_init__(self) -> None:
        if min(self.requests, self.input_tokens, self.cached, self.output_tokens) < 0:
            raise ValueError(f"use cannot be negative: {self}")
        if self.cached > self.input_tokens:
            raise ValueError(f"{self.cached} cached tokens are more than the input's {self.input_tokens}")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of spending and its parts, all in pico-USD; the parts sum to `total`."""

    total: int
    parts: Mapping[Driver, int]

    @property
    def driver(self) -> Driver:
        """Return the main driver: the largest part in the change's direction; the earlier step if equal."""
        sign = 1 if self.total >= 0 else -1
        return max(DRIVERS, key=lambda name: (sign * self.parts[name], -DRIVERS.index(name)))


def explain(
    before: Mapping[str, Use], after: Mapping[str, Use], weights: Mapping[str, Weights] | None = None
) -> Change:
    """Decompose the difference in spending of two periods, from usage by model. `weights`: of models with known cards.

    New and discontinued models count as mix. If there were no requests before, all of it is volume.
    """
    known = weights or {}
    first, last = sum(one.pico_usd for one in before.values()), sum(one.pico_usd for one in after.values())
    requests_before = sum(one.requests for one in before.values())
    requests_after = sum(one.requests for one in after.values())
    if not requests_before:
        return Change(last - first, {"volume": last - first, "mix": 0, "cache": 0, "price": 0})
    links = [first, _rounded(Fraction(first * requests_after, requests_before))]
    mixed = cached = Fraction(0)
    for model, use in after.items():
        weight = known.get(model, USUAL)
        earlier = before.get(model)
        rate = _rate(earlier, weight)
        if rate is None:
            rate = _rate(use, weight)
        if rate is None:  # cost without tokens: per request, such as of images or tools
            mixed += use.pico_usd
            cached += use.pico_usd
            continue
        share = _cached_share(earlier)
        if share is None:
            share = _cached_share(use) or Fraction(0)
        mixed += rate * _weighted(use, use.input_tokens * share, weight)
        cached += rate * _weighted(use, Fraction(use.cached), weight)
    links += [_rounded(mixed), _rounded(cached), last]
    steps = [later - earlier for earlier, later in zip(links, links[1:], strict=False)]
    return Change(last - first, dict(zip(DRIVERS, steps, strict=True)))


def _weighted(use: Use, cached: Fraction, weight: Weights) -> Fraction:
    """Return usage as equivalent tokens of uncached input, if `cached` tokens of the input were cached."""
    return use.input_tokens - cached + weight.cached * cached + weight.output * use.output_tokens


def _rate(use: Use | None, weight: Weights) -> Fraction | None:
    """Return the cost per equivalent token of uncached input; `None` if no token was used."""
    if use is None:
        return None
    tokens = _weighted(use, Fraction(use.cached), weight)
    return Fraction(use.pico_usd) / tokens if tokens else None


def _cached_share(use: Use | None) -> Fraction | None:
    return Fraction(use.cached, use.input_tokens) if use is not None and use.input_tokens else None


def _rounded(value: Fraction) -> int:
    return round(value)
