"""Evaluates every live rollout each second: rolls back a harmful one, and starts the next step when one is over."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from algorithms.rollouts.rollout_tally import RolloutTotals, summed
from algorithms.rollouts.rollout_verdict import breaches_of
from backends.processes.beat import until_beat
from contracts.errors import TollkeeperError
from contracts.serving.rollouts import RolloutSpec
from gateway.request.clock import Clock
from gateway.routing.rollouts.boards import RolloutBoard, Shared
from gateway.routing.rollouts.rollout_book import RolloutBook
from gateway.routing.rollouts.shadow_budget import day_of
from gateway.routing.rollouts.shadows import Shadows

_log = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 1.0
_MINUTE_NS: Final = 60 * 10**9


class RolloutWatch:
    """Judges by the observations of all gateways. Without them, by this gateway's: harm is stopped at once."""

    def __init__(
        self,
        book: RolloutBook,
        shadows: Shadows,
        board: RolloutBoard,
        live: Callable[[], Iterable[RolloutSpec]],
        clock: Clock,
    ) -> None:
        self._book = book
        self._shadows = shadows
        self._board = board
        self._live = live
        self._clock = clock
        self.is_away = False  # the board did not answer at the last call

    async def run(self) -> None:
        """Evaluate all rollouts every second, until cancelled."""
        while True:
            await asyncio.sleep(until_beat(_EVERY_SECONDS))
            for spec in tuple(self._live()):
                try:
                    await self.look(spec)
                except TollkeeperError as error:
                    if not self.is_away:
                        _log.warning(
                            "rollouts cannot be synchronised with other gateways", extra={"reason": error.message}
                        )
                    self.is_away = True
                except Exception:  # an unexpected error of one rollout must not stop the others
                    _log.exception("a rollout cannot be evaluated", extra={"rollout": spec.id})

    async def look(self, spec: RolloutSpec) -> None:
        """Evaluate one rollout now. Raises ControlUnavailable after harm has been stopped here."""
        own, day, budget = self._book.observed(spec), day_of(self._clock.wall_ns()), self._shadows.budget_of(spec)
        spent = budget.here if budget.day == day else 0
        try:
            shared = await asyncio.to_thread(self._board.exchange, spec, own, day, spent)
        except TollkeeperError:
            self._stop_if_harmful(spec, own)
            raise
        self.is_away = False
        if shared.incumbent_before is not None:
            self._book.remember(spec, shared.incumbent_before)
            own = self._book.observed(spec)
        budget.learn(day, shared.own_shadow_pico_usd, shared.others_shadow_pico_usd)
        seen = _together(own, shared)
        reason = self._stop_if_harmful(spec, seen)
        if reason:
            await asyncio.to_thread(self._board.roll_back, spec, reason)
        elif self._board.can_step and self._is_over(spec, seen):
            await asyncio.to_thread(self._board.go_on, spec)

    def _stop_if_harmful(self, spec: RolloutSpec, seen: RolloutTotals) -> str:
        """Stop a rollout here that violates a guard; return the reason, empty if it continues."""
        reason = self._book.stopped(spec)
        if reason:
            return reason
        breaches = breaches_of(seen, spec.rules.guards)
        if not breaches:
            return ""
        reason = "; ".join(breach.words for breach in breaches)
        self._book.stop(spec, reason)
        _log.error("rollout rolled back", extra={"rollout": spec.id, "candidate": spec.candidate, "reason": reason})
        return reason

    def _is_over(self, spec: RolloutSpec, seen: RolloutTotals) -> bool:
        if spec.state != "running" or not spec.rules.steps:
            return False
        step = spec.rules.steps[spec.step]
        if spec.step + 1 >= len(spec.rules.steps) and not spec.rules.promotes:
            return False
        has_lasted = self._clock.wall_ns() - spec.stepped_at_ns >= step.min_minutes * _MINUTE_NS
        return has_lasted and seen.step_requests >= step.min_requests


def _together(own: RolloutTotals, shared: Shared) -> RolloutTotals:
    return summed([own, *shared.observed]) if shared.observed else own
