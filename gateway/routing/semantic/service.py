"""Semantic services of a gateway: the embedder's process, and the classifiers that use it."""

from collections.abc import Mapping

from backends.embedder.child import EmbedderChild
from contracts.serving.routes import RouteSpec
from gateway.routing.semantic.reader import SemanticReader


class SemanticService:
    """A gateway's embedder process and classifiers. The process is started at the first use."""

    def __init__(self, threads: int, timeout_ms: int) -> None:
        self.embedder = EmbedderChild(threads)
        self.reader = SemanticReader(self.embedder, timeout_ms / 1000)

    def sync(self, routes: Mapping[str, RouteSpec]) -> None:
        """Train on the routes' examples, if they have changed."""
        self.reader.sync(routes)

    @property
    def is_degraded(self) -> bool:
        """Return whether routes that should classify prompts send them to their defaults instead."""
        return bool(self.reader.fault)

    def status(self) -> dict[str, object]:
        """Return the state that GET /ready shows."""
        child = self.embedder
        return {
            "embedder": child.fault or ("ready" if child.is_ready else "not_running"),
            "embedder_restarts": child.restarts,
            "vectors_made": child.made,
            "routes": self.reader.status(),
        }

    async def close(self) -> None:
        """Stop the embedder and the training."""
        await self.reader.close()
        await self.embedder.close()
