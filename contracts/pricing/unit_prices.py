"""Prices by units other than tokens, as written by people: USD per image, USD per second.

On a card they are rates of the leaves that count these units, USD per million of a leaf, like those of tokens. A kind
of image is a service tier of the card.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from contracts.errors import ConfigurationError
from contracts.metering.usage import UNIT_LEAVES, Leaf, UnitLeaf
from contracts.pricing.service_tiers import VARIANT_MARK, tier_name

Rates = Mapping[Leaf, Decimal]

_MILLION: Final = 6  # as a power of ten
# A price's word, the leaf that counts it, and the number of leaf units in one, as a power of ten.
_UNITS: Final[Mapping[str, tuple[UnitLeaf, int]]] = {
    "image": ("images", 0),
    "second": ("milliseconds", 3),
    "character": ("characters", 0),
    "request": ("requests", 0),
}
_UNIT_OF: Final[Mapping[str, tuple[str, int]]] = {leaf: (word, power) for word, (leaf, power) in _UNITS.items()}
UNIT_WORDS: Final = tuple(_UNITS)
ANY_UNIT: Final = f"{', '.join(UNIT_WORDS[:-1])} or {UNIT_WORDS[-1]}"  # as texts say it
assert tuple(leaf for leaf, _ in _UNITS.values()) == UNIT_LEAVES


def with_units(
    rates: Rates, tiers: Mapping[str, Rates], per_unit: Mapping[str, Decimal]
) -> tuple[dict[Leaf, Decimal], dict[str, Rates]]:
    """Return a card's rates and service tiers, USD per million of each leaf, including prices by unit.

    `per_unit` has the words of `UNIT_WORDS`, and "image.KIND" for images of a quality, a size or both, such as
    "image.hd.1792x1024". Raises ConfigurationError on another word, or a kind that is priced twice.
    """
    merged: dict[Leaf, Decimal] = dict(rates)
    merged_tiers: dict[str, Rates] = dict(tiers)
    for word, price in per_unit.items():
        if word in _UNITS:
            leaf, power = _UNITS[word]
            if merged.setdefault(leaf, price.scaleb(_MILLION - power)) != price.scaleb(_MILLION - power):
                raise ConfigurationError(f"usd_per_unit has a price for {word!r}, and usd_per_mtok another")
        elif word.startswith(VARIANT_MARK) and word == tier_name(word) and all(word.split(".")):
            if merged_tiers.get(word, {"images": price.scaleb(_MILLION)}) != {"images": price.scaleb(_MILLION)}:
                raise ConfigurationError(f"usd_per_unit has a price for {word!r}, and service_tiers another")
            merged_tiers[word] = {"images": price.scaleb(_MILLION)}
        else:
            raise ConfigurationError(
                f"usd_per_unit has a price for {word[:60]!r}; units are {', '.join(UNIT_WORDS)} and, for images of a "
                f"quality, a size or both, {VARIANT_MARK}QUALITY.SIZE in small letters, such as image.hd.1792x1024"
            )
    return merged, merged_tiers


def check_units(rates: Rates, tiers: Mapping[str, Rates], per_unit: Mapping[str, Decimal]) -> None:
    """Raise ValueError on prices that `with_units` refuses, and on units among tokens, for use in validators."""
    for leaf in rates:
        if leaf in _UNIT_OF:
            raise ValueError(f"usd_per_mtok prices tokens, not {leaf}; put {_UNIT_OF[leaf][0]} into usd_per_unit")
    try:
        with_units(rates, tiers, per_unit)
    except ConfigurationError as error:
        raise ValueError(error.message) from error


def units_in(rates: Rates, tiers: Mapping[str, Rates]) -> dict[str, Decimal]:
    """Return the prices by unit in a card's rates and service tiers, in the words of `with_units`."""
    found = {}
    for leaf, rate in rates.items():
        if leaf in _UNIT_OF:
            word, power = _UNIT_OF[leaf]
            found[word] = rate.scaleb(power - _MILLION)
    return found | {
        name: prices["images"].scaleb(-_MILLION) for name, prices in tiers.items() if is_variant(name, prices)
    }


def without_units(rates: Rates, tiers: Mapping[str, Rates]) -> tuple[dict[Leaf, Decimal], dict[str, Rates]]:
    """Return a card's rates and service tiers without those that `units_in` returns."""
    return (
        {leaf: rate for leaf, rate in rates.items() if leaf not in _UNIT_OF},
        {name: prices for name, prices in tiers.items() if not is_variant(name, prices)},
    )


def is_variant(name: str, prices: Rates) -> bool:
    """Return whether a service tier is only the price of a kind of image."""
    return name.startswith(VARIANT_MARK) and set(prices) == {"images"}


def unit_of(leaf: str) -> tuple[str, int]:
    """Return the unit that a leaf is sold by, and the number of leaf counts in one: "second", 1000. Tokens: "",
    1000000.
    """
    word, power = _UNIT_OF.get(leaf, ("", _MILLION))
    return word, 10**power
