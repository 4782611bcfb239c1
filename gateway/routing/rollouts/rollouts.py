"""The rollouts of a gateway: what requests meet on their way, and what watches over it beside them."""

import logging
from collections.abc import Mapping
from typing import Final

from algorithms.rollouts.rollout_tally import Seen
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
from gateway.routing.rollouts.rollout_book import RolloutBook
from gateway.routing.rollouts.rollout_watch import RolloutWatch
from gateway.routing.rollouts.seeing import attempt_of, seen_of
from gateway.routing.rollouts.shadows import Shadows
from gateway.wire.exchange import Exchange

_log = logging.getLogger(__name__)

_MOST_COPIED_BYTES: Final = 256 * 1024
_MOST_CHARACTERS: Final = 64 * 1024
_NO_ROOM: Final = (QueueFull.code, TargetsAway.code)
_HEAD_CHARACTERS: Final = 300  # a refusal is told by how an answer begins


class Rollouts:
    """One for a gateway. A request that takes part in none meets nothing of it but a look at `life.rollout`."""

    def __init__(self, board: RolloutBoard, limiter: Limiter, clock: Clock, embedder: Embedder | None = None) -> None:
        self.book = RolloutBook(clock)
        self.arms = Arms(self.book)
        self.shadows = Shadows(limiter, clock, embedder)
        self._board = board
        self._live: tuple[RolloutSpec, ...] = ()
        self.watching = RolloutWatch(self.book, self.shadows, board, lambda: self._live, clock)

    def sync(self, rollouts: Mapping[str, RolloutSpec]) -> None:
        """Accept the live rollouts, by route, as they are now."""
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
        """Have the answer copied as it leaves, where its text is to be looked at and nobody else has it copied."""
        spec = life.rollout
        if spec is None or reply.copied() is not None:
            return
        if spec.rules.guards.max_refusal_increase is not None or self._is_compared(life, spec):
            reply.copy_to(AnswerCopy(_MOST_COPIED_BYTES))

    async def look(self, life: RequestState, exchange: Exchange, reply: Reply | None) -> None:
        """Record what a request says of its arm, before it is recorded. Raises nothing.

        It waits for nothing, but for a copy's comparison.
        """
        try:
            await self._look(life, exchange, reply)
        except Exception:  # the request is a good one, and is recorded, whatever is wrong here
            _log.exception("a rollout cannot be told of a request", extra={"request_id": life.id_text})

    async def _look(self, life: RequestState, exchange: Exchange, reply: Reply | None) -> None:
        spec = life.rollout
        if spec is None:
            return
        if life.arm == "shadow":
            await self.shadows.compare(life, exchange, reply)
            return
        attempt = attempt_of(life, spec.candidate if life.arm == "candidate" else spec.incumbent)
        if attempt is None and life.left_first_for in _NO_ROOM:  # its callers find it full, or away: that is its own
            self._note(life, spec, Seen(failed=True))
            return
        if attempt is None:  # answered from the cache, or refused before any model: it took no part
            life.rollout, life.arm = None, ""
            return
        copied = None if reply is None or attempt.error is not None else reply.copied()
        is_copied = self.shadows.wants(life, spec)
        most = _MOST_CHARACTERS if is_copied else _HEAD_CHARACTERS
        text = None if copied is None else text_of(copied[0] + copied[1], most)
        seen = seen_of(attempt, text, life.wait_ns or 0)
        if seen is not None:
            self._note(life, spec, seen)
        if is_copied:
            self.shadows.copy(life, spec, text)

    def _note(self, life: RequestState, spec: RolloutSpec, seen: Seen) -> None:
        """Note what was seen of an arm, also on the request's record."""
        self.book.note(spec, life.arm, seen)
        if seen.failed:  # whoever has answered then
            life.add_decision("rollout_answer", {"failed": True})
        elif seen.refused is not None:
            life.add_decision("rollout_answer", {"refused": seen.refused})

    @property
    def has_stopped(self) -> bool:
        """Return whether a live rollout's candidate is given nothing here, for what it did."""
        return any(self.book.stopped(spec) for spec in self._live)

    def status(self) -> dict[str, object]:
        """Return how live rollouts stand at this gateway, and what became of copies since it began."""
        shadows = self.shadows
        live = {
            spec.id: {"route": spec.route, "percent": spec.percent, "stopped": self.book.stopped(spec)}
            for spec in self._live
        }
        return {"live": live, "copies_made": shadows.made, "copies_dropped": dict(shadows.dropped)}

    async def close(self) -> None:
        """End copies in progress, and let go of the board."""
        await self.shadows.close()
        self._board.close()

    def _is_compared(self, life: RequestState, spec: RolloutSpec) -> bool:
        return life.arm == "shadow" or self.shadows.wants(life, spec)
