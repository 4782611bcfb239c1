"""One attempt in progress, from the request's state to what the target's health learns from it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from backends.llm.base import ModelCall, Sink, Target, check_translated
from backends.llm.http.streamed_call import refuses_stream, streamed
from contracts.api.generation import Result
from contracts.errors import (
    ClientGone,
    EngineUnavailable,
    HedgeLost,
    TollkeeperError,
    UnsupportedParameter,
    UpstreamRejected,
)
from contracts.recording.records import AttemptReason
from contracts.serving.configuration import TargetSpec
from gateway.config.targets import TargetRegistry, TargetReplaced
from gateway.request.attempt import Attempt
from gateway.request.clock import Clock
from gateway.request.context import trace_parent
from gateway.request.request_state import RequestState
from gateway.routing.attempts.assembling_sink import AssemblingSink
from gateway.routing.attempts.attempt_sink import is_called_by_stream, shows_tokens
from gateway.routing.attempts.time_limits import TimeLimits
from gateway.routing.health.health_book import HealthBook
from gateway.routing.health.target_health import TargetHealth, failure_words, is_fault, rest_asked

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class AttemptDependencies:
    """The dependencies of every attempt and race. `random` returns a number from 0 to 1."""

    targets: TargetRegistry
    clock: Clock
    health: HealthBook
    random: Callable[[], float]
    sleep: Sleep
    note_sent: Callable[[RequestState], None] | None = None  # called before each call


class AttemptRun(Attempt):
    """One attempt in progress. Always call `finish` at its end."""

    def __init__(
        self,
        life: RequestState,
        spec: TargetSpec,
        reason: AttemptReason,
        health: TargetHealth,
        clock: Clock,
        began_ns: int | None = None,  # `None`: now
        *,
        is_planned: bool = False,  # no part of the pool uses token times, except those of streams
    ) -> None:
        super().__init__(
            len(life.attempts) + 1,
            spec,
            reason,
            clock.wall_ns() if began_ns is None else life.started_at_ns + began_ns - life.began_ns,
            clock.monotonic_ns() if began_ns is None else began_ns,
            model=life.model,
        )
        self._clock = clock
        self.health = health
        self._probed = self.health.begin()
        assert life.request is not None
        if is_planned:
            self._is_by_stream, self._is_whole = False, not life.is_streamed
        else:
            self._is_by_stream = is_called_by_stream(self.health, spec, life.request, life.body)
            self._is_whole = not (self._is_by_stream or shows_tokens(spec, life.request))
        self._assembling: AssemblingSink | None = None
        self.is_good = False
        self._trace_parent = trace_parent(life.trace, life.span_id, self.number) if life.is_traced else ""
        life.attempts.append(self)
        self._placed = None if life.choice is None else life.choice.begin(spec, self, is_blind=self._is_whole)

    @property
    def is_probe(self) -> bool:
        """Return whether this attempt probes a target whose circuit is open."""
        return bool(self._probed)

    def note_output(self) -> None:
        """Record the first output of a probe, so that other requests need not wait for its end."""
        now_ns = self._clock.monotonic_ns()
        probed, self._probed = self._probed, ()
        took_ns = now_ns - self.began_ns
        self.health.end_probe(probed, now_ns, is_good=True, took_ns=took_ns, is_whole=self._is_whole)

    def receiver(self, reply: Sink) -> Sink:
        """Return the sink for the target's answer: the reply, or one that assembles a complete answer for it."""
        if not self._is_by_stream:
            return reply
        self._assembling = AssemblingSink(reply, self, self._clock)
        return self._assembling

    async def call(self, target: Target, call: ModelCall, sink: Sink, limits: TimeLimits | None) -> Result:
        """Call the target, for a complete answer by a stream if the pool times tokens. Call `deliver` afterwards.

        A server that refuses the stream is called again without one: it has done no work.
        """
        if self._trace_parent:
            call.trace_parent = self._trace_parent
        if not self._is_by_stream:
            return await self._send(target, call, sink, limits)
        try:
            return await self._send(target, streamed(call), sink, limits)
        except UpstreamRejected as error:
            if not refuses_stream(error):
                raise
        self._is_whole = True
        result = await self._send(target, call, sink, limits)
        self.health.refuses_streams = True  # the stream was the reason
        return result

    def deliver(self) -> None:
        """Pass an assembled answer to the reply. Raise UpstreamBroken if there was none."""
        if self._assembling is not None:
            self._assembling.finish()

    async def _send(self, target: Target, call: ModelCall, sink: Sink, limits: TimeLimits | None) -> Result:
        check_translated(call, target.spec)
        if limits is None:
            return await target.call(call, sink)
        return await limits.call(target, call, sink, self)

    async def follow(self, answer: Callable[[], Awaitable[Result]]) -> TollkeeperError | None:
        """Await the call and store its answer; return the error if it failed. Raise CancelledError if the client
        disconnected.
        """
        try:
            self.result = await answer()
            self.is_good = True
        except asyncio.CancelledError:
            if self.error is None:
                self.error = ClientGone("the client closed the connection before the answer was complete")
            raise
        except TollkeeperError as error:
            self.error = error
        finally:
            self.finish()
        return self.error

    def succeed(self, result: Result) -> None:
        """Store the result of a call that ran without an asyncio task."""
        self.result, self.is_good = result, True
        self.finish()

    def fail(self, error: TollkeeperError) -> None:
        """Store the error of an attempt that ran without an asyncio task."""
        self.error = error
        self.finish()

    def withdraw(self) -> None:
        """Undo this attempt: its target was not called after all."""
        if self._placed is not None:
            self._placed.end(self.result, HedgeLost(f"{self.target.id!r} was not called"))

    def lose(self) -> None:
        """Record that another attempt won the race and the gateway cancelled this one."""
        self.error = HedgeLost(f"another target answered before {self.target.id!r}")

    def finish(self) -> None:
        """Record how the attempt ended, in the request's state and in the target's health."""
        now_ns = self.ended_ns = self._clock.monotonic_ns()
        self.result = self.account or self.result
        placed, self._placed, self._assembling = self._placed, None, None  # they lead back here, and to the request
        if placed is not None:
            placed.end(self.result, self.error)
        error, health = self.error, self.health
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
                why="" if error is None else failure_words(error),
            )
        elif self._verdict:
            health.note_success(took_ns, is_whole=self._is_whole)
        elif error is not None and self._verdict is False:
            health.note_failure(now_ns, error)
        elif isinstance(error, HedgeLost):
            health.note_time(now_ns - self.began_ns, is_whole=self._is_whole)  # it would have taken even longer

    @property
    def _verdict(self) -> bool | None:
        """Return whether the target is healthy; `None` if the attempt does not show it, for example because the client
        disconnected.

        A target that refuses a request because of its content is healthy.
        """
        error = self.error
        if self.is_good:
            return True
        if error is None or isinstance(error, ClientGone | HedgeLost | EngineUnavailable | TargetReplaced):
            return None
        return not is_fault(error)

    def _took_ns(self) -> int | None:
        if self._is_whole:
            return self.ended_ns - self.began_ns if self.is_good else None
        return None if self.first_at_ns is None else self.first_at_ns - self.began_ns


def is_final(error: TollkeeperError) -> bool:
    """Return whether no other target can correct an error: what this target cannot do, another may."""
    return not error.retryable and not isinstance(error, UnsupportedParameter)
