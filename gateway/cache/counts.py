"""Counters of the response cache since the start, for health and metrics."""

import msgspec


class CacheCounts(msgspec.Struct):
    """Requests to models and routes that keep answers, by what the cache did for them; and what became of answers."""

    hits: int = 0
    semantic_hits: int = 0
    misses: int = 0
    bypasses: int = 0  # the caller wanted none, or the request cannot be named
    waits: int = 0  # requests that waited for another's answer
    kept: int = 0
    not_kept: int = 0  # cut, filtered, too large, by another model than the one asked for, ...
    unreadable: int = 0  # kept answers that no longer parsed
    saved_pico_usd: int = 0  # what hits would have cost, less what they cost
