"""The seam to what applications keep at the gateway and read back: files, batches, stored responses."""

from typing import Protocol

from contracts.access.endpoints import Endpoint
from contracts.serving.configuration import KeyEntry, Snapshot
from gateway.apis.rendering import ErrorShape
from gateway.wire.exchange import Exchange


class Resource(Protocol):
    """Answers some paths that no model is asked for."""

    endpoint: Endpoint  # what a key must be allowed
    errors: ErrorShape

    def methods(self, path: str) -> tuple[str, ...]:
        """Return the methods that a path answers; none if it is not one of this resource's."""

    async def answer(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> None:
        """Answer a request of an authenticated caller. Raises a TollkeeperError before anything was sent."""
