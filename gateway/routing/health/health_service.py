"""Keeps the book of targets' health up to date, with what other gateways say where there are such."""

import asyncio

from gateway.routing.health.health_book import HealthBook
from gateway.routing.health.shared_health import SharedHealth


class HealthService:
    """The book, and what looks through it. `shared` is `None` if this gateway is alone."""

    def __init__(self, book: HealthBook, shared: SharedHealth | None) -> None:
        self.book = book
        self.shared = shared

    async def run(self) -> None:
        """Look through the book, and exchange notes, until cancelled."""
        if self.shared is None:
            await self.book.run()
        else:
            await asyncio.gather(self.book.run(), self.shared.run())

    async def close(self) -> None:
        """Close the way to the other gateways."""
        if self.shared is not None:
            await self.shared.close()
