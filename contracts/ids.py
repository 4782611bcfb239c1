"""Request and batch identifiers: UUID version 7 (RFC 9562), so that ids sort by the time they were made."""

import os
from uuid import UUID

_VERSION_7 = 0x7 << 76
_VARIANT_10 = 0x2 << 62
_RAND_A_MASK = 0xFFF
_RAND_B_MASK = (1 << 62) - 1


def uuid7(unix_ns: int) -> UUID:
    """Make a UUIDv7 from a Unix time in nanoseconds.

    48 bits of milliseconds, then 74 random bits: two ids of one millisecond collide with probability 2^-74.
    The caller passes the clock's reading, so that an id and the record's start agree.
    """
    millis = (unix_ns // 1_000_000) & 0xFFFF_FFFF_FFFF
    random = int.from_bytes(os.urandom(10), "big")
    value = (millis << 80) | _VERSION_7 | ((random >> 64) & _RAND_A_MASK) << 64 | _VARIANT_10 | (random & _RAND_B_MASK)
    return UUID(int=value)


def sibling_of(identifier: UUID, place: int) -> UUID:
    """Give the id of a request's part: of the same time, and another for each place; place 0 is the id itself."""
    fixed, random = identifier.int & ~_RAND_B_MASK, identifier.int & _RAND_B_MASK
    return UUID(int=fixed | ((random + place) & _RAND_B_MASK))


def unix_ms_of(identifier: UUID) -> int:
    """Give the Unix time in milliseconds that a UUIDv7 carries."""
    return identifier.int >> 80
