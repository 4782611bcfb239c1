"""Parses a charge's description (model, kind of usage, service tier) and its unit."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final, NamedTuple

from contracts.metering.usage import MEDIA, leaf_of
from contracts.pricing.service_tiers import BATCH

_WORDS: Final = re.compile(r"[A-Za-z0-9.]+")
_REGION: Final = re.compile(r"^(?:[A-Z]{2,4}\d|[A-Z]{3}\d[A-Z]?|EUC\d|EU)[-_:]")
_MARKETPLACE: Final = re.compile(r"^MP:[A-Z]+\d_")
_INPUT: Final = frozenset({"input", "inp", "prompt", "inputtokencount", "inputtoken", "in"})
_OUTPUT: Final = frozenset({"output", "outp", "outpt", "opt", "out", "completion", "outputtokencount", "response"})
_UNIT: Final = re.compile(
    r"(?i)^\s*([\d.,]*)\s*([km]?)\s*(?:input |output )?(tokens?|images?|seconds?|minutes?|hours?|characters?)$"
)
_MOST_PER_UNIT: Final = 10**12
# Kind of usage by unit (empty: tokens, whose kind is in the description), and the quantity per unit.
_COUNTED: Final[Mapping[str, tuple[str, int]]] = {
    "token": ("", 1),
    "image": ("images", 1),
    "second": ("milliseconds", 1_000),
    "minute": ("milliseconds", 60_000),
    "hour": ("milliseconds", 3_600_000),
    "character": ("characters", 1),
}
# Words for units in a description, such as "tts-1, characters".
_BY_UNIT: Final[Mapping[str, str]] = {
    "images": "images",
    "seconds": "milliseconds",
    "minutes": "milliseconds",
    "characters": "characters",
}
_CACHED: Final = frozenset({"cached", "cache", "cachd", "cchd", "caching"})
_WRITE: Final = frozenset({"write", "writes", "creation"})
_HOUR: Final = frozenset({"1h", "1hr", "1hour", "hour"})
# Words for a medium, besides its name.
_MEDIA: Final[Mapping[str, str]] = {
    **{medium: medium for medium in MEDIA},
    "aud": "audio",
    "img": "image",
}
_REASONING: Final = frozenset({"reasoning", "thinking"})
_TIERS: Final = {"batch": BATCH, "batches": BATCH, "flex": "flex", "priority": "priority", "prty": "priority"}
_NOISE: Final = frozenset(
    {
        *("token", "tokens", "count", "units", "unit", "text", "predictions", "prediction", "usage", "read", "ttl"),
        *("global", "glbl", "gl", "regional", "regnl", "data", "datazone", "dz", "dzone", "zone", "standard", "std"),
        *("cross", "region", "5m", "5min", "minute", "for", "of", "the", "generation", "vertex", "ai", "bedrock"),
    }
)


@dataclass(frozen=True, slots=True)
class Described:
    """A parsed description. `kind` is a kind of usage; empty if it has none."""

    model: str
    kind: str
    tier: str


@lru_cache(maxsize=20_000)
def describe(text: str) -> Described:
    """Parse a description such as "gpt-4o-mini, cached input" or "USE1-Claude4Sonnet-input-token-count"."""
    text = _MARKETPLACE.sub("", _REGION.sub("", text.strip()))
    model, tier = "", ""
    seen: set[str] = set()
    for found in _WORDS.finditer(text):
        word = found.group()
        lower = word.lower()
        if lower in _TIERS:
            tier = _TIERS[lower] or tier
        elif lower in _ALL:
            seen.add(lower)
        elif lower not in _NOISE:
            model += ("-" if model else "") + word
    return Described(model, _kind(seen), tier)


_ALL: Final = frozenset(_BY_UNIT).union(_INPUT, _OUTPUT, _CACHED, _WRITE, _HOUR, _MEDIA, _REASONING)


def _kind(seen: set[str]) -> str:
    if seen & _CACHED and seen & _WRITE:
        return "cache_write_1h" if seen & _HOUR else "cache_write_5m"
    medium = next((medium for word, medium in _MEDIA.items() if word in seen), "text")
    for group, words in (("cache_read", _CACHED), ("output", _OUTPUT | _REASONING), ("input", _INPUT)):
        if seen & words:
            return leaf_of(group, medium) or f"{group}_text"
    return next((kind for word, kind in _BY_UNIT.items() if word in seen), "")


class Counted(NamedTuple):
    """A unit's kind of usage, empty for tokens of any kind, and the quantity per unit."""

    kind: str
    per_unit: Decimal

    def fits(self, kind: str) -> bool:
        """Return whether the unit can count a kind of usage."""
        return self.kind in ("", kind)


def kind_of_usage(described: Described, counted: Counted | None) -> str:
    """Return the kind of usage of a description, else of its unit; empty if neither has one."""
    return described.kind or ("" if counted is None else counted.kind)


def counted_by(unit: str) -> Counted | None:
    """Parse a unit such as "1K tokens", "Images" or "Minutes"; `None` if it is unknown."""
    found = _UNIT.match(unit)
    if found is None:
        return None
    number = found.group(1).replace(",", "")
    try:
        count = Decimal(number) if number else Decimal(1)
    except InvalidOperation:
        return None
    if not 0 < count <= _MOST_PER_UNIT:
        return None
    kind, each = _COUNTED[found.group(3).lower().removesuffix("s")]
    return Counted(kind, count * each * {"": 1, "k": 1_000, "m": 1_000_000}[found.group(2).lower()])
