"""Share failures of targets between gateways. A report of another gateway is verified by a probe before it counts."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from backends.processes.beat import until_beat
from contracts.errors import CountersUnavailable
from gateway.request.clock import Clock
from gateway.routing.health.breaker import Breaker
from gateway.routing.health.health_book import HealthBook

_TURN_SECONDS: Final = 1.0
_LEAST_MILLISECONDS: Final = 3000  # a report outlives the interval at which the others read it


class FailureReport(msgspec.Struct, frozen=True, array_like=True):
    """A report of an open circuit: by which gateway, the number of openings so far, and why."""

    gateway: str
    opened: int
    why: str


class Board(Protocol):
    """The shared storage through which gateways exchange reports on targets."""

    async def exchange(self, posted: Mapping[str, tuple[bytes, int]], wanted: Sequence[str]) -> dict[str, bytes]: ...
    async def close(self) -> None: ...


class SharedHealth:
    """Reports each breaker that is open here; if another gateway reports one, the next call is a probe.

    So a gateway that alone cannot reach a target takes it from no other gateway. Without Redis, each gateway uses only
    its own observations.
    """

    def __init__(self, book: HealthBook, board: Board, gateway: str, clock: Clock) -> None:
        self._book = book
        self._board = board
        self._gateway = gateway
        self._clock = clock
        self._looked_into: dict[str, FailureReport] = {}
        self.is_away = False

    async def run(self) -> None:
        """Write and read reports once a second, until cancelled."""
        while True:
            await asyncio.sleep(until_beat(_TURN_SECONDS))
            await self.turn()

    async def turn(self) -> None:
        """Write and read reports once."""
        breakers = self._breakers()
        try:
            notes = await self._board.exchange(self._posted(breakers), list(breakers))
        except CountersUnavailable:
            self.is_away = True
            return
        self.is_away = False
        for name, packed in notes.items():
            with contextlib.suppress(msgspec.DecodeError):  # for example a later version's
                self._take(name, breakers[name], msgspec.msgpack.decode(packed, type=FailureReport))
        self._looked_into = {name: note for name, note in self._looked_into.items() if name in notes}
        self._book.look()

    async def close(self) -> None:
        """Close the connection to Redis."""
        await self._board.close()

    def _breakers(self) -> dict[str, Breaker]:
        found = {f"{one.pool.id}/{one.id}": one.breaker for one in self._book.targets if one.breaker is not None}
        return found | {f"provider {name}": breaker for name, breaker in self._book.providers.items()}

    def _posted(self, breakers: Mapping[str, Breaker]) -> dict[str, tuple[bytes, int]]:
        now_ns, posted = self._clock.monotonic_ns(), {}
        for name, breaker in breakers.items():
            if breaker.state == "open":
                left = max(breaker.until_ns - now_ns, 0) // 1_000_000
                note = FailureReport(self._gateway, breaker.opened, breaker.why)
                posted[name] = (msgspec.msgpack.encode(note), max(left, _LEAST_MILLISECONDS))
        return posted

    def _take(self, name: str, breaker: Breaker, note: FailureReport) -> None:
        if note.gateway == self._gateway or self._looked_into.get(name) == note:
            return
        self._looked_into[name] = note
        breaker.suspect(f"{note.why} (at gateway {note.gateway})")


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
