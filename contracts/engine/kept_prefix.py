"""A prompt's beginning that its caller wants kept for the next request; see `cache_control`."""

import msgspec


class KeptPrefix(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The given number of tokens of it are to stay cached for this long after it. Part of the engine wire."""

    tokens: int
    ttl_seconds: int
