"""The rollouts of a gateway: assignment of requests, and background evaluation."""

import logging
from collections.abc import Mapping
from typing import Final

from algorithms.rollouts.rollout_tally import ObservedRequest
from backends.embedder.base import Embedder
from contracts.errors import QueueFull, TargetsAway
from contracts.serving.rollouts import RolloutSpec
from gateway.limits.limiter import Limiter
from gateway.replies.answer_copy import AnswerCopy
from gateway.replies.reply import Reply
from gateway.request.clock import Clock
from gateway.request.request_state import RequestState
from gateway.routing.rollouts.answer_text import text_of
from gateway.routing.rollouts.arms import Arms
from gateway.routing.rollouts.boards import RolloutBoard
from gateway.routing.rollouts.observations import attempt_of, observation_of
from gateway.routing.rollouts.rollout_book import RolloutBook
from gateway.routing.rollouts.rollout_watch import RolloutWatch
from gateway.routing.rollouts.shadows import Shadows
from gateway.wire.exchange import Exchange

_log = logging.getLogger(__name__)

_MOST_COPIED_BYTES: Final = 256 * 1024
_MOST_CHARACTERS: Final = 64 * 1024
_NO_ROOM: Final = (QueueFull.code, TargetsAway.code)
_HEAD_CHARACTERS: Final = 300  # a refusal is recognised by how an answer starts


class Rollouts:
    """A gateway's rollouts. For a request without a rollout the only cost is a check of `life.rollout`."""

    def __init__(self, board: RolloutBoard, limiter: Limiter, clock: Clock, embedder: Embedder | None = None) -> None:
        self.book = RolloutBook(clock)
        self.arms = Arms(self.book)
        self.shadows = Shadows(limiter, clock, embedder)
        self._board = board
        self._live: tuple[RolloutSpec, ...] = ()
        self.watching = RolloutWatch(self.book, self.shadows, board, lambda: self._live, clock)

    def sync(self, rollouts: Mapping[str, RolloutSpec]) -> None:
        """Adopt the current live rollouts, by route."""
        if not rollouts and not self._live:
            return
        before = {spec.id: spec for spec in self._live}
        self._live = tuple(rollouts.values())
        self.book.sync(self._live)
        self.shadows.sync(self._live)
        for spec in self._live:
            if before.get(spec.id) != spec and (reason := self._board.stopped(spec)):
                self.book.stop(spec, reason)

    def watch(self, life: RequestState, reply: Reply) -> None:
        """Copy the answer while it is sent, if its text is to be evaluated and nothing else copies it."""
        spec = life.rollout
        if spec is None or reply.copied() is not None:
            return
        if spec.rules.guards.max_refusal_increase is not None or self._is_compared(life, spec):
            reply.copy_to(AnswerCopy(_MOST_COPIED_BYTES))

    async def look(self, life: RequestState, exchange: Exchange, reply: Reply | None) -> None:
        """Add a request's result to its arm, before the request is recorded. Raises nothing.

        It waits only for a copy's comparison.
        """
        try:
            await self._look(life, exchange, reply)
        except Exception:  # the request succeeded and is recorded, whatever fails here
            _log.exception("a request cannot be added to its rollout", extra={"request_id": life.id_text})

    async def _look(self, life: RequestState, exchange: Exchange, reply: Reply | None) -> None:
        spec = life.rollout
        if spec is None:
            return
        if life.arm == "shadow":
            await self.shadows.compare(life, exchange, reply)
            return
        attempt = attempt_of(life, spec.candidate if life.arm == "candidate" else spec.incumbent)
        if attempt is None and life.left_first_for in _NO_ROOM:  # its callers find it full, or away: that is its own
            self._note(life, spec, ObservedRequest(failed=True))
            return
        if attempt is None:  # answered from the cache, or refused before any model: not part of the rollout
            life.rollout, life.arm = None, ""
            return
        copied = None if reply is None or attempt.error is not None else reply.copied()
        is_copied = self.shadows.wants(life, spec)
        most = _MOST_CHARACTERS if is_copied else _HEAD_CHARACTERS
        text = None if copied is None else text_of(copied[0] + copied[1], most)
        seen = observation_of(attempt, text, life.wait_ns or 0)
        if seen is not None:
            self._note(life, spec, seen)
        if is_copied:
            self.shadows.copy(life, spec, text)

    def _note(self, life: RequestState, spec: RolloutSpec, seen: ObservedRequest) -> None:
        """Note what was seen of an arm, also on the request's record."""
        self.book.note(spec, life.arm, seen)
        if seen.failed:  # whichever target answered then
            life.add_decision("rollout_answer", {"failed": True})
        elif seen.refused is not None:
            life.add_decision("rollout_answer", {"refused": seen.refused})

    @property
    def has_stopped(self) -> bool:
        """Return whether a live rollout's candidate is stopped here because of its results."""
        return any(self.book.stopped(spec) for spec in self._live)

    def status(self) -> dict[str, object]:
        """Return the state of live rollouts at this gateway, and the number of copies since it started."""
        shadows = self.shadows
        live = {
            spec.id: {"route": spec.route, "percent": spec.percent, "stopped": self.book.stopped(spec)}
            for spec in self._live
        }
        return {"live": live, "copies_made": shadows.made, "copies_dropped": dict(shadows.dropped)}

    async def close(self) -> None:
        """End copies in progress, and close the board."""
        await self.shadows.close()
        self._board.close()

    def _is_compared(self, life: RequestState, spec: RolloutSpec) -> bool:
        return life.arm == "shadow" or self.shadows.wants(life, spec)
