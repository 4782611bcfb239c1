"""Gateways' counters under load while the Redis primary that they count at is killed or frozen."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from backends.counters.address import CountersAddress
from contracts.rules.limits import BudgetSpec, LimitSpec, Scope
from gateway.limits.counters.base import Counter, Shortage
from gateway.limits.counters.redis_store import RedisStore
from tests.backends.counters.redis_fleet import RedisFleet, RedisNode

How = Literal["killed", "frozen"]

_LOOK_SECONDS: Final = 0.02
_LONGEST_SECONDS: Final = 180.0


@dataclass(frozen=True, slots=True)
class Failover:
    """How long a lost primary took, in seconds: until another was promoted, until all gateways count there again, and
    the longest time in which no request was admitted.
    """

    promoted_seconds: float
    recovered_seconds: float
    longest_gap_seconds: float


class FailoverLoad:
    """Gateways that each take one at a time of a day's window and of a budget of the same amount."""

    def __init__(
        self,
        address: CountersAddress,
        namespace: str,
        name: str,
        *,
        amount: int,
        gateways: int,
        pause_seconds: float = 0.01,
        timeout_seconds: float = 0.25,
    ) -> None:
        """Accept a name that no load before had: its rules begin unused.

        Each gateway rests for `pause_seconds` between two requests, and waits for Redis for `timeout_seconds`.
        """
        self.amount = amount
        self._pause_seconds = pause_seconds
        scope = Scope("acme", "tenant")
        self._rules: tuple[LimitSpec | BudgetSpec, ...] = (
            LimitSpec(f"day-{name}", scope, "tokens", amount, "day", when_away="refuse"),
            BudgetSpec(f"budget-{name}", scope, "pico_usd", amount, "month"),
        )
        self._stores = [
            RedisStore(address, f"{name}-{number}", namespace=namespace, timeout_seconds=timeout_seconds)
            for number in range(gateways)
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._last_take = 0.0
        self.taken = 0
        self.takes_until = amount
        self.longest_gap_seconds = 0.0

    async def start(self) -> None:
        """Start to take."""
        for store in self._stores:
            await store.start()
            self._tasks.append(asyncio.create_task(store.run()))
        self._last_take = time.monotonic()
        self._tasks += [asyncio.create_task(self._take(store)) for store in self._stores]

    async def lose(self, fleet: RedisFleet, how: How) -> Failover:
        """Take the primary away, bring it back once another was promoted, and wait until all gateways count again."""
        lost = await asyncio.to_thread(fleet.primary)
        assert lost is not None, "there is no primary"
        lost.kill() if how == "killed" else lost.freeze()
        began = self._last_take = time.monotonic()
        self.longest_gap_seconds = 0.0
        try:
            while await asyncio.to_thread(fleet.primary) in (None, lost):
                await self._look(began, "the promotion of a replica")
            promoted = time.monotonic()
        finally:
            await asyncio.to_thread(bring_back, lost, how)
        while not self.is_together:
            await self._look(began, "the gateways' coming back")
        return Failover(promoted - began, time.monotonic() - began, self.longest_gap_seconds)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is so. Raises AssertionError if that takes longer than three minutes."""
        began = time.monotonic()
        while not condition():
            await self._look(began, what)

    @property
    def is_together(self) -> bool:
        """Return whether no gateway is on its own."""
        return all(store.status()["reachable"] is True and not store._link.is_away for store in self._stores)

    async def close(self) -> None:
        """Stop taking, and let gateways take leave."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for store in self._stores:
            await store.close()

    async def _take(self, store: RedisStore) -> None:
        counters: list[Counter] = [store.open(rule, "") for rule in self._rules]
        lines = [(counter, 1) for counter in counters]
        while True:
            if self.taken < self.takes_until:
                now_ns = time.time_ns()
                has_room = all(counter.room(now_ns, "") >= 1 for counter in counters)
                if has_room or not isinstance(await store.seek_room(lines, "", now_ns), Shortage):
                    for counter in counters:
                        counter.settle(counter.take(1, time.time_ns(), ""), 1, 1, time.time_ns())
                    self._note_take()
            await asyncio.sleep(self._pause_seconds)

    def _note_take(self) -> None:
        now = time.monotonic()
        self.longest_gap_seconds = max(self.longest_gap_seconds, now - self._last_take)
        self._last_take = now
        self.taken += 1

    async def _look(self, began: float, what: str) -> None:
        assert time.monotonic() - began < _LONGEST_SECONDS, f"{what} did not happen within {_LONGEST_SECONDS:g} s"
        await asyncio.sleep(_LOOK_SECONDS)


def bring_back(node: RedisNode, how: How) -> None:
    """Start a server again, or let it go on; nothing if it runs."""
    if how == "frozen":
        node.go_on()
    elif not node.is_running:
        node.start()
