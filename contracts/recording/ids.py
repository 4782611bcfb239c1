"""Request and batch identifiers: UUID version 7 (RFC 9562), so that ids sort by creation time."""

import hashlib
import os
from typing import Final
from uuid import UUID

_VERSION_7 = 0x7 << 76
_VARIANT_10 = 0x2 << 62
_RAND_A_MASK = 0xFFF
_RAND_B_MASK = (1 << 62) - 1
_TAIL_BYTES: Final = 10
UUID_RANDOM_TAIL: Final = 8  # bytes at an id's end, of which 62 bits are random
_MAX_KEPT_CHARACTERS: Final = 64
# Random numbers are drawn for many ids at once, as most of the cost is in the call.
_DRAWN: Final = 64
_DRAWN_BYTES: Final = _TAIL_BYTES * _DRAWN
_FEW_BYTES: Final = _DRAWN_BYTES // 2
_RANDOM_BITS: Final = int.from_bytes(bytes.fromhex("0fff3fffffffffffffff") * _DRAWN, "big")
_FIXED_BITS: Final = int.from_bytes(bytes.fromhex("70008000000000000000") * _DRAWN, "big")


def bounded_id(sent: str) -> str:
    """Return a sender's id for storage: unchanged up to 64 characters, else its digest, to bound memory."""
    return sent if len(sent) <= _MAX_KEPT_CHARACTERS else hashlib.sha256(sent.encode()).hexdigest()


def uuid7(unix_ns: int) -> UUID:
    """Create a UUIDv7 from a Unix time in nanoseconds.

    48 bits of milliseconds, then 74 random bits: two ids of one millisecond collide with probability 2^-74.
    The caller passes the clock's reading, so that an id and the record's start agree.
    """
    millis = (unix_ns // 1_000_000) & 0xFFFF_FFFF_FFFF
    random = int.from_bytes(os.urandom(10), "big")
    value = (millis << 80) | _VERSION_7 | ((random >> 64) & _RAND_A_MASK) << 64 | _VARIANT_10 | (random & _RAND_B_MASK)
    return UUID(int=value)


class IdSource:
    """Creates UUIDv7 as bytes and as text, without a UUID object. Not thread-safe."""

    __slots__ = ("_place", "_tails")

    def __init__(self) -> None:
        self._tails = b""  # the random parts of further ids
        self._place = 0  # of the next one's

    def next(self, unix_ns: int) -> tuple[bytes, str]:
        """Return a UUIDv7 for a Unix time in nanoseconds, as 16 bytes and as text."""
        start = self._place
        if start >= len(self._tails):
            self._draw()
            start = 0
        self._place = end = start + _TAIL_BYTES
        made = ((unix_ns // 1_000_000) & 0xFFFF_FFFF_FFFF).to_bytes(6, "big") + self._tails[start:end]
        digits = made.hex()
        return made, f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def refill(self) -> None:
        """Draw more random numbers if few are left, so that callers of `next` rarely have to."""
        if len(self._tails) - self._place < _FEW_BYTES:
            self._draw()

    def _draw(self) -> None:
        """Replace the random parts: 74 random bits each, and between them the version and the variant."""
        drawn = int.from_bytes(os.urandom(_DRAWN_BYTES), "big")
        self._tails, self._place = (drawn & _RANDOM_BITS | _FIXED_BITS).to_bytes(_DRAWN_BYTES, "big"), 0


def sibling_of(identifier: UUID, place: int) -> UUID:
    """Return the id of a part of a request: same time, different for each place; place 0 is the id itself."""
    fixed, random = identifier.int & ~_RAND_B_MASK, identifier.int & _RAND_B_MASK
    return UUID(int=fixed | ((random + place) & _RAND_B_MASK))


def unix_ms_of(identifier: UUID) -> int:
    """Return the Unix time in milliseconds in a UUIDv7."""
    return identifier.int >> 80
