"""Metrics of routing: the state that policies have of replicas (none for pools used in turn), and semantic routes."""

from collections.abc import Iterator
from typing import TypedDict, cast

from gateway.observability.metrics.exposition import Family, counter, gauge
from gateway.routing.replicas.router import Router
from gateway.routing.semantic.service import SemanticService

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


def semantic_families(service: SemanticService) -> Iterator[Family]:
    """Yield the metrics of semantic routes."""
    yield Family(
        "tollkeeper_semantic_readings_total",
        "counter",
        "Prompts of semantic routes by outcome; only read and abstained were classified.",
        [({"route": route, "state": state}, count) for (route, state), count in service.reader.readings.items()],
    )
    embedder = service.embedder
    yield gauge("tollkeeper_embedder_ready", "Whether the embedder process answers.", int(embedder.is_ready))
    yield counter("tollkeeper_embedder_vectors_total", "Texts embedded by the embedder.", embedder.made)
    yield counter("tollkeeper_embedder_ends_total", "Unexpected ends of the embedder.", embedder.restarts)
