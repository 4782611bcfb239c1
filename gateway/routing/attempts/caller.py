"""Calls a request's candidates one after another until one answers, or no further one may be called."""

import asyncio
from collections.abc import Callable, Sequence

from backends.llm.base import ModelCall
from contracts.api.media import MediaRequest
from contracts.errors import TollkeeperError, UnsupportedParameter
from contracts.serving.configuration import TargetSpec
from gateway.config.targets import TargetRegistry
from gateway.replies.reply import Reply
from gateway.request.clock import Clock
from gateway.request.request_state import RequestState
from gateway.routing.attempts.attempt_run import AttemptDependencies, AttemptRun, Sleep
from gateway.routing.attempts.trial import Trial, costs_a_retry
from gateway.routing.health.health_book import HealthBook


class Caller:
    """Calls candidates. Each call is an attempt in the request's state, with its answer or error."""

    def __init__(
        self,
        targets: TargetRegistry,
        clock: Clock,
        health: HealthBook,
        sleep: Sleep = asyncio.sleep,
        note_sent: Callable[[RequestState], None] | None = None,
    ) -> None:
        """Accept the dependencies. `note_sent` is called with the request before each call of a target."""
        self.health = health
        self._clock = clock
        self._means = AttemptDependencies(targets, clock, health, health.random, sleep, note_sent)

    async def call(
        self,
        life: RequestState,
        reply: Reply,
        call: ModelCall,
        candidates: Sequence[TargetSpec],
        begun: AttemptRun | None = None,
        *,
        is_counted: bool = False,
    ) -> None:
        """Call the candidates until one answers. Raise the error if no other candidate can correct it.

        Candidates belong to one pool, best first; unavailable ones are skipped (TargetsAway if all are). Once the
        client has received output, only a target that can continue the answer is a candidate. `begun` is the first
        candidate's attempt, made without a task, which has failed. `is_counted`: the pool's budgets have counted the
        request already.
        """
        pool = self.health.pool(candidates[0].pool)
        if not is_counted:
            pool.count_request()
        try:
            await Trial(self._means, pool, life, reply, call, begun).run(candidates)
        except TollkeeperError as error:
            if reply.has_begun:
                tell_how_far(error, life)
            raise

    def may_fall_back(self, life: RequestState, reply: Reply, error: TollkeeperError) -> bool:
        """Return whether another model may be called after an error: it may help, and the pool's retry budget allows
        it.

        Failures of a rollout's candidate do not use that budget.
        """
        if reply.has_begun or not (error.retryable or isinstance(error, UnsupportedParameter)):
            return False
        assert life.model is not None
        if life.rollout is not None and life.arm == "candidate" and life.model.id == life.rollout.candidate:
            return True  # falls back to the incumbent, which had all the traffic before: this cannot overload it
        return not costs_a_retry(error) or self.health.pool(life.model.pool).budget.spend(self._clock.monotonic_ns())


def tell_how_far(error: TollkeeperError, life: RequestState) -> None:
    """Add to the error that ends a stream how much of the answer had been sent."""
    if isinstance(life.request, MediaRequest):
        return  # its size is not measured in tokens
    tokens = sum([attempt.tokens for attempt in life.answering_attempts])
    error.reached_tokens = tokens
    error.message = f"{error.message}; the answer had reached {tokens} token{'' if tokens == 1 else 's'}"
