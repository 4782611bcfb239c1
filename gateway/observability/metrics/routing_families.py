"""Metrics of what routing policies know about replicas. Pools with weighted round robin have none."""

from collections.abc import Iterator
from typing import TypedDict, cast

from gateway.observability.metrics.exposition import Family
from gateway.routing.replicas.router import Router

_MILLISECONDS = 1_000


class _Replica(TypedDict):
    running: int
    predicted_wait_ms: float
    cache: str
    is_suspect: bool


class _Pool(TypedDict):
    decisions: int
    blocks: int
    replicas: dict[str, _Replica]


def routing_families(router: Router) -> Iterator[Family]:
    """Yield the metrics of pools with a policy, and of the replicas in them."""
    pools = cast("dict[str, _Pool]", router.status()["pools"])
    replicas = [
        ({"pool": pool, "target": target}, replica)
        for pool, fleet in pools.items()
        for target, replica in fleet["replicas"].items()
    ]
    yield Family(
        "tollkeeper_replica_in_flight",
        "gauge",
        "Requests of this gateway in progress at a replica.",
        [(where, replica["running"]) for where, replica in replicas],
    )
    yield Family(
        "tollkeeper_replica_predicted_wait_seconds",
        "gauge",
        "Predicted wait at a replica for a request that arrives now.",
        [(where, replica["predicted_wait_ms"] / _MILLISECONDS) for where, replica in replicas],
    )
    yield Family(
        "tollkeeper_replica_suspect",
        "gauge",
        "Whether a replica is unavailable, or has just failed.",
        [(where, int(replica["is_suspect"])) for where, replica in replicas],
    )
    yield Family(
        "tollkeeper_replica_cache_mirrored",
        "gauge",
        "Whether a replica's cache is known exactly; 0: assumed from what was sent there.",
        [(where, int(replica["cache"] == "exact")) for where, replica in replicas],
    )
    yield Family(
        "tollkeeper_routing_decisions_total",
        "counter",
        "Requests that a pool's policy has chosen a replica for.",
        [({"pool": pool}, fleet["decisions"]) for pool, fleet in pools.items()],
    )
    yield Family(
        "tollkeeper_routing_index_blocks",
        "gauge",
        "Prompt blocks that are, or are assumed to be, in a replica's cache.",
        [({"pool": pool}, fleet["blocks"]) for pool, fleet in pools.items()],
    )
