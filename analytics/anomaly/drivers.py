"""Why spending changed: by volume, mix, cache and price. The parts sum to the change exactly, in integer pico-USD.

A chain of what-ifs from the reference to what came: first only the number of requests changes, then which models they
went to and how long they were, then how much of their input was cached, then what it cost. Each part is what its link
adds, so that nothing is left over and nothing is counted twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

Driver = Literal["volume", "mix", "cache", "price"]
DRIVERS: Final[tuple[Driver, ...]] = ("volume", "mix", "cache", "price")


@dataclass(frozen=True, slots=True)
class Weights:
    """What cached input and output cost by uncached input. The usual shape of price cards, unless a card says."""

    cached: Fraction = Fraction(1, 10)
    output: Fraction = Fraction(4)


USUAL: Final = Weights()


@dataclass(frozen=True, slots=True)
class Use:
    """One model's use in a period: requests, tokens, and their cost in pico-USD. `cached` is part of `input_tokens`."""

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
        """Return what moved it most: of the parts in the change's direction the largest, in the order of the chain."""
        sign = 1 if self.total >= 0 else -1
        return max(DRIVERS, key=lambda name: (sign * self.parts[name], -DRIVERS.index(name)))


def explain(
    before: Mapping[str, Use], after: Mapping[str, Use], weights: Mapping[str, Weights] | None = None
) -> Change:
    """Explain what two periods' spending differs by, from their use by model. `weights` are those of known cards.

    A model that is new, or gone, is a change of the mix. If there was no request before, all is volume.
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
        if rate is None:  # cost without a token: per request, as images or tools have
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
    """Return a use in tokens of uncached input, were so much of it cached."""
    return use.input_tokens - cached + weight.cached * cached + weight.output * use.output_tokens


def _rate(use: Use | None, weight: Weights) -> Fraction | None:
    """Return what a token of uncached input cost; `None` if no token was used."""
    if use is None:
        return None
    tokens = _weighted(use, Fraction(use.cached), weight)
    return Fraction(use.pico_usd) / tokens if tokens else None


def _cached_share(use: Use | None) -> Fraction | None:
    return Fraction(use.cached, use.input_tokens) if use is not None and use.input_tokens else None


def _rounded(value: Fraction) -> int:
    return round(value)
