"""One try at one target: from its place in the request's life to what its target's health learns of it."""

import asyncio
from collections.abc import Awaitable, Callable

from contracts.configuration import TargetSpec
from contracts.errors import ClientGone, EngineUnavailable, HedgeLost, TollkeeperError, UnsupportedParameter
from contracts.generation import Result
from contracts.records import AttemptReason
from gateway.attempts.attempt_sink import shows_tokens
from gateway.attempts.health_book import HealthBook
from gateway.attempts.target_health import TargetHealth, is_fault, rest_asked
from gateway.clock import Clock
from gateway.life import Attempt, Life
from gateway.targets import TargetReplaced


class AttemptRun:
    """One attempt under way. `finish` must follow, whatever came before."""

    __slots__ = ("_clock", "_is_whole", "_placed", "_probed", "attempt", "health", "is_good")

    def __init__(self, life: Life, spec: TargetSpec, reason: AttemptReason, book: HealthBook, clock: Clock) -> None:
        self._clock = clock
        self.health: TargetHealth = book.of(spec)
        self._probed = self.health.begin()
        assert life.request is not None
        self._is_whole = not shows_tokens(spec, life.request)
        self.is_good = False
        self.attempt = Attempt(
            number=len(life.attempts) + 1,
            target=spec,
            reason=reason,
            started_at_ns=clock.wall_ns(),
            began_ns=clock.monotonic_ns(),
            model=life.model,
        )
        life.attempts.append(self.attempt)
        self._placed = None if life.choice is None else life.choice.begin(spec, self.attempt.progress)

    @property
    def is_probe(self) -> bool:
        """Say whether its first output decides over more than its request."""
        return bool(self._probed)

    def note_output(self) -> None:
        """Take note of a probe's first output: others need not wait for its end."""
        now_ns = self._clock.monotonic_ns()
        probed, self._probed = self._probed, ()
        took_ns = now_ns - self.attempt.began_ns
        self.health.end_probe(probed, now_ns, is_good=True, took_ns=took_ns, is_whole=self._is_whole)

    async def follow(self, answer: Callable[[], Awaitable[Result]]) -> TollkeeperError | None:
        """Take the answer, or give what it failed with. Raises CancelledError, its client having left."""
        attempt = self.attempt
        try:
            attempt.result = await answer()
            self.is_good = True
        except asyncio.CancelledError:
            if attempt.error is None:
                attempt.error = ClientGone("the client closed the connection before the answer was complete")
            raise
        except TollkeeperError as error:
            attempt.error = error
        finally:
            self.finish()
        return attempt.error

    def lose(self) -> None:
        """Take note that another was ahead: it was cancelled by us."""
        self.attempt.error = HedgeLost(f"another target was ahead of {self.attempt.target.id!r}")

    def finish(self) -> None:
        """Write down how it ended, and tell its target's health."""
        attempt, now_ns = self.attempt, self._clock.monotonic_ns()
        attempt.ended_ns = now_ns
        attempt.result = attempt.progress.account or attempt.result
        if self._placed is not None:
            self._placed.end(attempt.result, attempt.error)
        error, health = attempt.error, self.health
        rest_seconds = None if error is None else rest_asked(error)
        if rest_seconds:
            health.rest(now_ns, rest_seconds)
        took_ns = self._took_ns()
        if self._probed:
            probed, self._probed = self._probed, ()
            health.end_probe(
                probed,
                now_ns,
                is_good=self._verdict,
                took_ns=took_ns,
                is_whole=self._is_whole,
                is_lost=isinstance(error, HedgeLost),
                why="" if error is None else error.error_code,
            )
        elif self._verdict:
            health.note_success(took_ns, is_whole=self._is_whole)
        elif error is not None and self._verdict is False:
            health.note_failure(now_ns, error)
        elif isinstance(error, HedgeLost):
            health.note_time(now_ns - attempt.began_ns, is_whole=self._is_whole)  # it would have taken longer still

    @property
    def _verdict(self) -> bool | None:
        """Say whether the target is well; `None`: that was not seen, as where its client has left.

        A request that is refused for what it asks shows that the target is there.
        """
        error = self.attempt.error
        if self.is_good:
            return True
        if error is None or isinstance(error, ClientGone | HedgeLost | EngineUnavailable | TargetReplaced):
            return None
        return not is_fault(error)

    def _took_ns(self) -> int | None:
        attempt = self.attempt
        if self._is_whole:
            return attempt.ended_ns - attempt.began_ns if self.is_good else None
        first_at_ns = attempt.progress.first_at_ns
        return None if first_at_ns is None else first_at_ns - attempt.began_ns


def is_final(error: TollkeeperError) -> bool:
    """Say whether no other target can mend it: what this one cannot do another may."""
    return not error.retryable and not isinstance(error, UnsupportedParameter)
