"""Keeps targets' health up to date, with the reports of other gateways if there are any."""

import asyncio

from gateway.routing.health.health_book import HealthBook
from gateway.routing.health.shared_health import SharedHealth


class HealthService:
    """The health book and its background work. `shared` is `None` if this gateway is alone."""

    def __init__(self, book: HealthBook, shared: SharedHealth | None) -> None:
        self.book = book
        self.shared = shared

    async def run(self) -> None:
        """Check the health, and exchange reports, until cancelled."""
        if self.shared is None:
            await self.book.run()
        else:
            await asyncio.gather(self.book.run(), self.shared.run())

    async def close(self) -> None:
        """Close the connection to the other gateways."""
        if self.shared is not None:
            await self.shared.close()
