"""Metrics of semantic routing: classified prompts, and the embedder."""

from collections.abc import Iterator

from gateway.observability.metrics.exposition import Family, counter, gauge
from gateway.routing.semantic.service import SemanticService


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
