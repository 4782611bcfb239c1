"""Reports incidents every second, if there are any and a publisher is configured."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from algorithms.abuse.incident import Incident
from backends.processes.beat import until_beat
from contracts.errors import TollkeeperError
from gateway.identity.abuse.incidents import IncidentBook
from gateway.request.clock import Clock

_log = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 1.0


class Publisher(Protocol):
    """Publishes incidents. Calls block."""

    def publish(self, incidents: Sequence[Incident]) -> None:
        """Write incidents. Raises a TollkeeperError if that is not possible now."""

    def close(self) -> None:
        """Close connections."""


class AbuseService:
    """Holds a gateway's incidents, and publishes them. Without a publisher they appear only in the log and on
    records.
    """

    def __init__(self, book: IncidentBook, clock: Clock, publisher: Publisher | None) -> None:
        self.book = book
        self._clock = clock
        self._publisher = publisher
        self.is_away = False  # the last publication failed

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await asyncio.sleep(until_beat(_EVERY_SECONDS))
            await self.tell()

    async def tell(self) -> None:
        """Publish the changes since the last call. Changes that cannot be published now are kept for the next call."""
        self.book.end_quiet(self._clock.wall_ns())
        changed = self.book.changes()
        if not changed or self._publisher is None:
            return
        try:
            await asyncio.to_thread(self._publisher.publish, changed)
            self.is_away = False
        except TollkeeperError as error:
            self.book.put_back(changed)
            if not self.is_away:
                _log.warning("abuse incidents cannot be published yet", extra={"reason": error.message})
            self.is_away = True

    async def close(self) -> None:
        """Report the rest, and close."""
        await self.tell()
        if self._publisher is not None:
            await asyncio.to_thread(self._publisher.close)
