"""Coalesces equal concurrent requests: one is sent, the others wait for its answer."""

import asyncio
from enum import Enum


class FlightResult(Enum):
    """How a flight ended: with a cached answer, with one that cannot be cached, or given up."""

    KEPT = 0
    WITHOUT = 1
    GIVEN_UP = 2


class Flight:
    """One request in progress whose answer other, equal requests wait for. The first request always ends it, even if
    its client disconnects.
    """

    __slots__ = ("_landed", "_name", "_others")

    def __init__(self, name: tuple[str, bytes], others: "dict[tuple[str, bytes], Flight]") -> None:
        self._name = name
        self._others = others
        self._landed: asyncio.Future[FlightResult] | None = None

    async def wait(self, within_seconds: float) -> FlightResult | None:
        """Wait until the flight ends and return its result; `None` if the time limit passes first."""
        if self._landed is None:
            self._landed = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait((self._landed,), timeout=within_seconds)
        return self._landed.result() if done else None

    def finish(self, how: FlightResult) -> None:
        """End the flight. A second call does nothing."""
        if self._others.get(self._name) is self:
            del self._others[self._name]
        if self._landed is not None and not self._landed.done():
            self._landed.set_result(how)


class Flights:
    """Requests in progress that others may wait for, by tenant and key."""

    def __init__(self) -> None:
        self._flights: dict[tuple[str, bytes], Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def find(self, tenant: str, key: bytes) -> Flight | None:
        """Return the flight in progress for a key."""
        return self._flights.get((tenant, key))

    def open(self, tenant: str, key: bytes) -> Flight:
        """Start a flight. None may be in progress for the key."""
        name = (tenant, key)
        assert name not in self._flights, "two flights for one key"
        flight = self._flights[name] = Flight(name, self._flights)
        return flight
