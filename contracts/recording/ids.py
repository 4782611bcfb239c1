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
_TAILS_AT_ONCE: Final = 32
_TAILS_MORE: Final = 8
_MAX_KEPT_CHARACTERS: Final = 64
_HEX: Final = [f"{byte:02x}" for byte in range(256)]


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

    __slots__ = ("_minute", "_minute_text", "_tails")

    def __init__(self) -> None:
        self._tails: list[tuple[bytes, str]] = []  # created several at a time: most of the cost is in the calls
        self._minute = -1
        self._minute_text = ""  # prefix of ids of this minute, of 2^16 ms

    def next(self, unix_ns: int) -> tuple[bytes, str]:
        """Return a UUIDv7 for a Unix time in nanoseconds, as 16 bytes and as text."""
        millis = (unix_ns // 1_000_000) & 0xFFFF_FFFF_FFFF
        minute, within = millis >> 16, millis & 0xFFFF
        if minute != self._minute:
            self._minute, self._minute_text = minute, f"{minute:08x}-"
        if not self._tails:
            self._tails = _tails(_TAILS_AT_ONCE)
        tail, text = self._tails.pop()
        return millis.to_bytes(6, "big") + tail, f"{self._minute_text}{_HEX[within >> 8]}{_HEX[within & 0xFF]}-{text}"

    def refill(self) -> None:
        """Create more random tails if few are left, so that callers of `next` rarely have to."""
        if len(self._tails) < _TAILS_AT_ONCE:
            self._tails += _tails(_TAILS_MORE)


def _tails(count: int) -> list[tuple[bytes, str]]:
    """Return random tails of ids: version and variant among 74 random bits, as bytes and as text."""
    made = bytearray(os.urandom(_TAIL_BYTES * count))
    for start in range(0, len(made), _TAIL_BYTES):
        made[start] = made[start] & 0x0F | 0x70
        made[start + 2] = made[start + 2] & 0x3F | 0x80
    tails, digits = bytes(made), made.hex()
    found: list[tuple[bytes, str]] = []
    for start in range(0, len(tails), _TAIL_BYTES):
        at = 2 * start
        text = f"{digits[at : at + 4]}-{digits[at + 4 : at + 8]}-{digits[at + 8 : at + 20]}"
        found.append((tails[start : start + _TAIL_BYTES], text))
    return found


def sibling_of(identifier: UUID, place: int) -> UUID:
    """Return the id of a part of a request: same time, different for each place; place 0 is the id itself."""
    fixed, random = identifier.int & ~_RAND_B_MASK, identifier.int & _RAND_B_MASK
    return UUID(int=fixed | ((random + place) & _RAND_B_MASK))


def unix_ms_of(identifier: UUID) -> int:
    """Return the Unix time in milliseconds in a UUIDv7."""
    return identifier.int >> 80
