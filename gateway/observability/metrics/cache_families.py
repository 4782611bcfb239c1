"""Metrics of the response cache: hits, misses, size."""

from collections.abc import Iterator, Mapping
from typing import Final

from gateway.observability.metrics.exposition import Family, counter, gauge

_PICO_USD_PER_USD = 10**12
_SHARED_OUTCOMES: Final = ("hits", "misses", "unreadable", "failures", "sent", "dropped")


def cache_families(state: Mapping[str, int]) -> Iterator[Family]:
    """Yield the metrics of the response cache, from `AnswerCache.state`."""
    yield Family(
        "tollkeeper_answer_cache_requests_total",
        "counter",
        "Requests to models and routes with a response cache, by outcome.",
        [
            ({"outcome": outcome}, state[name])
            for outcome, name in (
                ("hit", "hits"),
                ("semantic_hit", "semantic_hits"),
                ("miss", "misses"),
                ("bypass", "bypasses"),
            )
        ],
    )
    yield Family(
        "tollkeeper_answer_cache_answers_total",
        "counter",
        "Responses by outcome: kept, not_kept, evicted, unreadable.",
        [({"outcome": name}, state[name]) for name in ("kept", "not_kept", "evicted", "unreadable")],
    )
    yield counter(
        "tollkeeper_answer_cache_waits_total",
        "Requests that waited for the answer to an equal request.",
        state["waits"],
    )
    yield counter(
        "tollkeeper_answer_cache_saved_usd_total",
        "Cost saved by cache hits: their cost at a model minus the cost of the hit.",
        state["saved_pico_usd"] / _PICO_USD_PER_USD,
    )
    yield gauge("tollkeeper_answer_cache_entries", "Answers kept.", state["entries"])
    yield gauge("tollkeeper_answer_cache_bytes", "Memory used by cached responses, in bytes.", state["bytes"])
    yield gauge(
        "tollkeeper_answer_cache_max_bytes", "Maximum memory of cached responses, in bytes.", state["max_bytes"]
    )
    if "shared_hits" in state:
        yield Family(
            "tollkeeper_answer_cache_shared_total",
            "counter",
            "Responses that gateways share in Redis, by outcome.",
            [({"outcome": name}, state[f"shared_{name}"]) for name in _SHARED_OUTCOMES],
        )
