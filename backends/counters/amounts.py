"""Amounts as they travel to Lua, whose numbers are exact only up to 2^53: in two parts of base 10^9."""

from collections.abc import Mapping, Sequence
from typing import Final

_BASE: Final = 10**9


def split(amount: int) -> tuple[int, int]:
    """Return the parts of an amount; the sign is in the first."""
    return divmod(amount, _BASE)


def joined(parts: Sequence[int]) -> int:
    """Return the amount of two parts."""
    return parts[0] * _BASE + parts[1]


def merge(changes: Mapping[int, int], into: dict[int, int]) -> None:
    """Add changes by bucket to what is there."""
    for bucket, amount in changes.items():
        into[bucket] = into.get(bucket, 0) + amount


def deltas(by_bucket: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return changes by bucket as they travel: bucket and the two parts."""
    return [(bucket, *divmod(amount, _BASE)) for bucket, amount in by_bucket.items() if amount]
