"""Encodes amounts for Lua, whose numbers are exact only up to 2^53: as two parts in base 10^9."""

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
    """Add changes by bucket to the amounts in `into`."""
    for bucket, amount in changes.items():
        into[bucket] = into.get(bucket, 0) + amount


def deltas(by_bucket: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Encode changes by bucket for Lua: the bucket and the two parts of each."""
    return [(bucket, *divmod(amount, _BASE)) for bucket, amount in by_bucket.items() if amount]
