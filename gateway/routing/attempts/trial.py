"""One request's attempts at the targets of a pool: in which order, how often, for how long, and with which retry
budget.
"""

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from backends.llm.base import ModelCall, Sink
from contracts.api.generation import Result
from contracts.errors import (
    EngineUnavailable,
    HostLost,
    TargetsAway,
    TollkeeperError,
    UnsupportedParameter,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamTimeout,
)
from contracts.recording.records import AttemptReason
from contracts.serving.configuration import TargetSpec
from gateway.replies.reply import Reply
from gateway.request.request_state import RequestState
from gateway.routing.attempts.attempt_run import AttemptDependencies, AttemptRun, is_final
from gateway.routing.attempts.attempt_sink import AttemptSink, is_called_by_stream, shows_tokens
from gateway.routing.attempts.race import Race
from gateway.routing.attempts.time_limits import TimeLimits
from gateway.routing.attempts.turn_order import turns
from gateway.routing.health.breaker import CallPermission
from gateway.routing.health.pool_health import PoolHealth

_log = logging.getLogger(__name__)

_SECOND_NS: Final = 1_000_000_000
_LEAST_TIMES: Final = 20  # number of first tokens seen before their quantile defines "late"
# Errors of an overloaded target: calling the next one costs the pool's retry budget.
_OVERLOADED: Final = (UpstreamTimeout, UpstreamOverloaded)


class Trial:
    """The attempts of one request at one pool."""

    __slots__ = ("_begun", "_call", "_failure", "_life", "_limits", "_means", "_pool", "_reply")

    def __init__(
        self,
        means: AttemptDependencies,
        pool: PoolHealth,
        life: RequestState,
        reply: Reply,
        call: ModelCall,
        begun: AttemptRun | None,
    ) -> None:
        self._means = means
        self._pool = pool
        self._life = life
        self._reply = reply
        self._call = call
        self._begun = begun
        self._failure: TollkeeperError | None = None
        self._limits = TimeLimits(pool.policy, self._left_seconds()) if pool.policy.is_timed else None

    async def run(self, candidates: Sequence[TargetSpec]) -> None:
        """Try all candidates, and repeat that as often as the pool's retry policy allows. Raise the last error."""
        for number in range(self._pool.policy.retries + 1):
            if number and not await self._pause(candidates, number):
                break
            if await self._go_through(candidates, is_again=bool(number)):
                return
            if self._reply.has_begun or isinstance(self._failure, UnsupportedParameter | TargetsAway):
                break
        assert self._failure is not None
        raise self._failure

    async def _go_through(self, candidates: Sequence[TargetSpec], *, is_again: bool) -> bool:
        """Try each candidate that may be called; return whether one answered. Raise an error that no other target can
        correct.
        """
        call, was_tried = self._call, False
        raced: list[TargetSpec] = []
        for spec in self._turns(candidates):
            if spec in raced:
                continue
            resumes = call.continuation is not None and self._means.targets.can_continue(spec, call.continuation)
            if self._reply.has_begun and not resumes and self._begun is None:
                continue
            if self._failure is not None and not self._may_go_on(resumes=resumes, is_again=is_again):
                return False
            was_tried = True
            if resumes:
                error = await self._try(spec, "continuation", resumes=True)
            else:
                call.continuation = None
                error = await self._call_anew(spec, candidates, raced, is_again=is_again)
            if error is None:
                return True
            self._take(error, spec)
        if not was_tried and self._failure is None:
            self._failure = self._all_away(candidates)
        return False

    async def _call_anew(
        self, spec: TargetSpec, candidates: Sequence[TargetSpec], raced: list[TargetSpec], *, is_again: bool
    ) -> TollkeeperError | None:
        """Call a target with the whole prompt, racing another target if it is late; return the error, or `None`."""
        has_tried = bool(self._life.attempts) and self._begun is None
        reason: AttemptReason = "first" if not has_tried else "retry" if is_again else "fallback"
        late_seconds = None if self._reply.has_begun or self._begun is not None else self._late_after(spec)
        if late_seconds is None:
            return await self._try(spec, reason, resumes=False)
        return await self._race(spec, reason, late_seconds, candidates, raced)

    def _turns(self, candidates: Sequence[TargetSpec]) -> Iterable[TargetSpec]:
        return turns(candidates, self._means.health, self._means.clock.monotonic_ns, is_begun=self._begun is not None)

    async def _try(self, spec: TargetSpec, reason: AttemptReason, *, resumes: bool) -> TollkeeperError | None:
        """Call one target; return its error, or `None`."""
        begun, self._begun = self._begun, None
        if begun is not None:  # it was called without a task, and has failed
            return begun.error
        run = self._begin(spec, reason)
        self._reply.begin_attempt(run, resumes=resumes)
        return await run.follow(partial(self._answer, run))

    async def _answer(self, run: AttemptRun) -> Result:
        target = self._means.targets.get(run.target)
        sink: Sink = run.receiver(self._reply)
        if run.is_probe:
            sink = AttemptSink(sink, run.note_output)
        result = await run.call(target, self._call, sink, self._limits)
        run.deliver()
        return result

    def _begin(self, spec: TargetSpec, reason: AttemptReason) -> AttemptRun:
        run = AttemptRun(self._life, spec, reason, self._means.health.of(spec), self._means.clock)
        if self._means.note_sent is not None:
            self._means.note_sent(self._life)
        return run

    def _take(self, error: TollkeeperError, spec: TargetSpec) -> None:
        """Store an error, and what another target needs to continue the answer. Raise an error that no other target can
        correct.
        """
        is_refused = isinstance(error, UnsupportedParameter)
        is_minor = is_final(error) or isinstance(error, EngineUnavailable | HostLost)  # a host's state is logged once
        _log.log(
            logging.DEBUG if is_refused else logging.INFO if is_minor else logging.WARNING,
            "target failed",
            extra={
                "request_id": self._life.id_text,
                "target": spec.id,
                "code": error.error_code,
                "reason": error.log_message,
            },
        )
        if is_final(error):
            raise error
        self._failure = self._failure if is_refused and self._failure is not None else error
        last = self._life.last_attempt
        assert last is not None
        self._call.continuation = last.result.continuation

    def _may_go_on(self, *, resumes: bool, is_again: bool) -> bool:
        """Return whether the pool's retry budget allows another attempt. Attempts that add no load need no budget."""
        assert self._failure is not None
        if not is_again and (resumes or not costs_a_retry(self._failure)):
            return True
        return self._pool.budget.spend(self._means.clock.monotonic_ns())

    # hedging

    def _late_after(self, spec: TargetSpec) -> float | None:
        """Return the seconds after which a first token is late; `None` if no second target is called for that."""
        hedge = self._pool.policy.hedge
        if hedge is None or self._pool.firsts.count < _LEAST_TIMES or not self._shows_tokens(spec):
            return None
        late_ns = self._pool.firsts.quantile_ns(hedge.quantile)
        return None if late_ns is None else max(late_ns / _SECOND_NS, hedge.least_seconds)

    def _shows_tokens(self, spec: TargetSpec) -> bool:
        call = self._call
        return shows_tokens(spec, call.request) or is_called_by_stream(
            self._means.health.of(spec), spec, call.request, call.body
        )

    async def _race(
        self,
        spec: TargetSpec,
        reason: AttemptReason,
        late_seconds: float,
        candidates: Sequence[TargetSpec],
        raced: list[TargetSpec],
    ) -> TollkeeperError | None:
        """Call a target, and a second one if the first is late. Add the targets that were called to `raced`."""
        health, clock = self._means.health, self._means.clock

        def second() -> TargetSpec | None:
            now_ns, life = clock.monotonic_ns(), self._life
            asked = {attempt.target.id for attempt in life.attempts if attempt.model is life.model}
            others = (
                one for one in candidates if one.id not in asked and health.of(one).ask(now_ns) is CallPermission.YES
            )
            other = next(others, None)
            return other if other is not None and self._pool.hedging.spend(now_ns) else None

        race = Race(self._means, self._life, self._reply, self._call, self._limits, self._begin, second)
        error = await race.run(spec, reason, late_seconds)
        raced += race.asked
        if len(race.asked) > 1:
            is_won = race.winner is not None and race.winner.reason == "hedge"
            self._pool.hedges_won += is_won
            self._pool.hedges_lost += not is_won
        return error

    # time

    def _left_seconds(self) -> float | None:
        """Return what is left of the total time of all attempts; `None` if there is no limit."""
        total = self._pool.policy.total_seconds
        if total is None:
            return None
        since_ns = self._life.admitted_ns or self._life.began_ns
        return max(total - (self._means.clock.monotonic_ns() - since_ns) / _SECOND_NS, 0.0)

    async def _pause(self, candidates: Sequence[TargetSpec], number: int) -> bool:
        """Wait before everything is tried again; return whether a further attempt makes sense.

        The pause is random up to the policy's backoff ("full jitter", AWS Architecture Blog, March 2015), in addition
        to the shortest pause that the candidates asked for.
        """
        policy, now_ns = self._pool.policy, self._means.clock.monotonic_ns()
        told_ns = min([self._means.health.of(spec).wait_ns(now_ns) for spec in candidates])
        told_seconds = told_ns / _SECOND_NS
        if told_seconds > policy.longest_backoff_seconds:
            return False
        backoff = min(policy.backoff_seconds * 2 ** (number - 1), policy.longest_backoff_seconds)
        seconds = told_seconds + backoff * self._means.random()
        left = self._left_seconds()
        if left is not None and seconds >= left:
            return False
        await self._means.sleep(seconds)
        return True

    def _all_away(self, candidates: Sequence[TargetSpec]) -> TargetsAway:
        now_ns = self._means.clock.monotonic_ns()
        seconds = min([self._means.health.of(spec).wait_ns(now_ns) for spec in candidates]) / _SECOND_NS
        return TargetsAway(
            f"every target of pool {self._pool.id!r} that may answer has an open "
            f"circuit; one is probed within {max(seconds, 1.0):.0f} s",
            retry_after_seconds=max(seconds, 1.0),
        )


def costs_a_retry(error: TollkeeperError) -> bool:
    """Return whether an attempt after this error may add to an overload, so that it costs the pool's retry budget.

    After a refused or lost connection, the request needs another target anyway; and a target that limits our rate gets
    a pause.
    """
    return isinstance(error, _OVERLOADED) or type(error) is UpstreamError
