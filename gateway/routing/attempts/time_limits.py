"""Applies a pool's time limits to one call, for every kind of target."""

import asyncio
from collections.abc import Callable

from backends.llm.base import ModelCall, Sink, Target
from contracts.api.generation import Result
from contracts.errors import UpstreamTimeout
from contracts.serving.failures import FailurePolicy
from gateway.replies.progress import Progress
from gateway.routing.attempts.attempt_sink import AttemptSink, shows_tokens


class TimeLimits:
    """The time limits of one request. `left_seconds` is the rest of the total time; `None`: there is no total limit."""

    def __init__(self, policy: FailurePolicy, left_seconds: float | None) -> None:
        self._policy = policy
        self._ends_at = None if left_seconds is None else asyncio.get_running_loop().time() + left_seconds

    async def call(self, target: Target, call: ModelCall, sink: Sink, progress: Progress) -> Result:
        """Call a target. Raise UpstreamTimeout if a limit is exceeded, else what the call raises."""
        loop = asyncio.get_running_loop()
        why = f"in total: the pool's total_seconds for all attempts is {self._policy.total_seconds}"
        paced = AttemptSink(sink, lambda: None)
        timers: list[asyncio.TimerHandle] = []
        try:
            async with asyncio.timeout_at(self._ends_at) as limit:

                def expire(reason: str) -> None:
                    nonlocal why
                    why = reason
                    limit.reschedule(loop.time())

                if shows_tokens(target.spec, call.request):
                    self._watch(loop, paced, progress, expire, timers)
                elif (whole := self._policy.whole_answer_seconds) is not None:
                    why_whole = f"for its complete answer: the pool's whole_answer_seconds is {whole}"
                    timers.append(loop.call_later(whole, expire, why_whole))
                return await target.call(call, paced)
        except TimeoutError as error:
            raise UpstreamTimeout(f"target {target.spec.id!r} took too long {why}") from error
        finally:
            for timer in timers:
                timer.cancel()

    def _watch(
        self,
        loop: asyncio.AbstractEventLoop,
        sink: AttemptSink,
        progress: Progress,
        expire: Callable[[str], None],
        timers: list[asyncio.TimerHandle],
    ) -> None:
        first, between = self._policy.first_token_seconds, self._policy.between_tokens_seconds

        def look_for_first() -> None:
            if not sink.has_output:
                expire(f"for its first token: the pool's first_token_seconds is {first}")

        def look_for_more(seen: tuple[int, int] | None) -> None:
            assert between is not None
            at = progress.last_at_ns
            # While a slow client blocks the target, no token can arrive: the time counts from the next check.
            now = None if at is None or sink.is_paused else (at, sink.pauses)
            if now is not None and now == seen:
                expire(f"between two tokens: the pool's between_tokens_seconds is {between}")
            else:
                timers[-1] = loop.call_later(between, look_for_more, now)

        if first is not None:
            timers.append(loop.call_later(first, look_for_first))
        if between is not None:
            timers.append(loop.call_later(between, look_for_more, None))
