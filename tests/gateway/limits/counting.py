"""What the suite of counters asks of a store under test: the store, its clock, and the way a gateway admits."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from contracts.rules.limits import BudgetSpec, LimitSpec, Period, Scope, Window
from contracts.rules.metrics import Metric
from gateway.limits.counters.base import Counter, CounterStore, Line, Mark, Shortage

SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Counting:
    """A store and its time. `advance` lets that many seconds pass: by moving a clock or, failing that, by sleeping.

    Where it sleeps, `can_jump` is false and tests that let more than a few seconds pass are skipped.
    """

    store: CounterStore
    now_ns: Callable[[], int]
    advance: Callable[[float], Awaitable[None]]
    can_jump: bool = True

    async def jump(self, seconds: float) -> None:
        """Let a time pass that nobody would sleep through."""
        if not self.can_jump:
            pytest.skip("this store's clock cannot be moved")
        await self.advance(seconds)

    async def jump_to(self, time_ns: int) -> None:
        """Let time pass until then."""
        assert time_ns >= self.now_ns()
        await self.jump((time_ns - self.now_ns()) / SECOND_NS)

    async def admit(
        self, lines: Sequence[Line], claimant: str = "", *, is_new: bool = False, most_places: int = 256
    ) -> list[Mark] | Shortage:
        """Accept all lines or none, as a gateway does: ask each for room, then the store, then take from each.

        `is_new`: the request does not take what is held under its claimant's name.
        """
        now_ns, name = self.now_ns(), "" if is_new else claimant
        if any(counter.room(now_ns, name) < amount for counter, amount in lines):
            shortage = await self.store.seek_room(
                lines, claimant, now_ns, may_claim=not is_new, most_places=most_places
            )
            if shortage is not None:
                return shortage
            now_ns = self.now_ns()
        return [counter.take(amount, now_ns, name) for counter, amount in lines]

    async def take(self, counter: Counter, amount: int, claimant: str = "") -> Mark:
        """Remove and return an amount that must be there."""
        taken = await self.admit([(counter, amount)], claimant)
        assert not isinstance(taken, Shortage), taken
        return taken[0]

    async def refusal(self, counter: Counter, amount: int, claimant: str = "", **how: Any) -> Shortage:
        """Ask for an amount that must not be there."""
        refused = await self.admit([(counter, amount)], claimant, **how)
        assert isinstance(refused, Shortage), f"{amount} of {counter.rule.id} was admitted"
        return refused


def limit(amount: int, window: Window | None = "second", *, metric: Metric = "tokens", name: str = "lim") -> LimitSpec:
    return LimitSpec(name, Scope("acme", "tenant"), metric, amount, window)


def slots(amount: int, *, name: str = "slots") -> LimitSpec:
    return limit(amount, None, metric="concurrency", name=name)


def conversation(amount: int, *, name: str = "agent") -> LimitSpec:
    return LimitSpec(name, Scope("acme", "conversation"), "tokens", amount)


def budget(amount: int, period: Period = "day", *, name: str = "bud", **more: Any) -> BudgetSpec:
    return BudgetSpec(name, Scope("acme", "tenant"), "pico_usd", amount, period, **more)


CountingFactory = Callable[[], AbstractAsyncContextManager[Counting]]


class ManualClock:
    """A clock that moves when told to."""

    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        return self._now_ns

    async def advance(self, seconds: float) -> None:
        self._now_ns += round(seconds * SECOND_NS)
