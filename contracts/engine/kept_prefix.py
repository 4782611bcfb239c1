"""A pinned prompt prefix: one that its caller wants cached for the next request; see `cache_control`."""

import msgspec


class KeptPrefix(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """How many tokens of the prompt stay cached, and how long after the request. Part of the wire protocol."""

    tokens: int
    ttl_seconds: int
