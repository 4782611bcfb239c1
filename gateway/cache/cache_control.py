"""Parse a caller's `Cache-Control`, as RFC 9111 (June 2022, section 5.2.1) defines it for requests."""

import re
from typing import Final

import msgspec

_MAX_AGE: Final = re.compile(r"max-age\s*=\s*\"?(\d{1,9})\"?")


class CacheWish(msgspec.Struct, frozen=True):
    """What a caller's `Cache-Control` asks for: whether the answer may come from the cache and be stored in it, and its
    maximum age (seconds).
    """

    may_read: bool = True
    may_keep: bool = True
    max_age_seconds: int | None = None


ANY: Final = CacheWish()


def read_cache_control(value: str) -> CacheWish:
    """Parse the header. Unknown directives are ignored, as the RFC requires.

    `no-store`: neither read nor stored. `no-cache` and `max-age=0`: answered by the model, and stored. `max-age=N`: not
    older than N.
    """
    if not value:
        return ANY
    words = [word.strip().lower() for word in value.split(",")]
    if "no-store" in words:
        return CacheWish(may_read=False, may_keep=False)
    stated = [int(found[1]) for word in words if (found := _MAX_AGE.fullmatch(word))]
    max_age = min(stated) if stated else None
    return CacheWish(may_read="no-cache" not in words and max_age != 0, max_age_seconds=max_age)
