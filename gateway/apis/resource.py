"""The interface of objects that applications store at the gateway: files, batches, stored responses."""

from typing import Protocol

from contracts.access.endpoints import Endpoint
from contracts.serving.configuration import KeyEntry, Snapshot
from gateway.apis.rendering import ErrorShape
from gateway.wire.exchange import Exchange


class Resource(Protocol):
    """Answers certain paths without calling a model."""

    endpoint: Endpoint  # what a key must be allowed
    errors: ErrorShape

    def methods(self, path: str) -> tuple[str, ...]:
        """Return the methods that a path supports; empty if the path does not belong to this resource."""

    async def answer(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> None:
        """Answer a request of an authenticated caller. Raises a TollkeeperError before anything was sent."""
