"""Serve a request by a cascade: ask cheaper models first, and the next model if an answer is not good enough."""

import asyncio
from functools import partial
from typing import Final

import msgspec

from contracts.api.chat import ChatRequest
from contracts.errors import TollkeeperError
from contracts.serving.routes import CascadePolicy
from gateway.replies.reply import Reply, ReplyFacts
from gateway.request.attempt import Attempt
from gateway.request.clock import Clock
from gateway.request.journey import goes_on
from gateway.request.request_state import RequestState
from gateway.request.reserving import Reserving
from gateway.request.stages import Stages
from gateway.routing.routes.fallback_chain import FallbackChain
from gateway.routing.routes.held_reply import HeldReply
from gateway.routing.routes.judge import what_lacks
from gateway.routing.routes.live_model_state import LiveModelState
from gateway.routing.routes.renaming import asked_whole
from gateway.routing.routes.route_plan import RouteCandidate

_MILLION: Final = 1_000_000


class _Kept(msgspec.Struct, eq=False):
    """The best answer so far, held back from the client: the latest one, with the attempts that produced it."""

    leg: RouteCandidate
    held: HeldReply
    attempts: list[Attempt]


class _Told(msgspec.Struct):
    """What the request's record says about one answer of the cascade."""

    entry: str
    lacks: str
    mean_logprob: float | None = None


class Cascades:
    """Runs cascades of requests whose fallback chain is known and whose first candidate has been chosen."""

    def __init__(self, stages: Stages, reserving: Reserving, clock: Clock) -> None:
        self._stages = stages
        self._reserving = reserving
        self._clock = clock

    @staticmethod
    def takes(life: RequestState, way: FallbackChain) -> bool:
        """Return whether a request is served by a cascade: a chat with one choice, and at least two models to ask."""
        request = life.request
        is_chat = isinstance(request, ChatRequest) and request.choice_count == 1
        return way.route.cascade is not None and way.judged > 1 and is_chat

    async def go(self, life: RequestState, way: FallbackChain) -> None:
        """Serve the request by the first model whose answer is good enough, else by the last model that answers.

        An answer is held back until it is judged. Only the last model's answer streams to the client. A held answer is
        never lost: the client gets it if the next model fails or may not be asked. Raise the last target's error if no
        model answered.
        """
        told: list[_Told] = []
        try:
            await _Run(self._stages, self._reserving, self._clock, life, way, told).go()
        finally:
            if told:
                life.add_decision("cascade", told)


class _Run:
    """One request's cascade."""

    def __init__(
        self,
        stages: Stages,
        reserving: Reserving,
        clock: Clock,
        life: RequestState,
        way: FallbackChain,
        told: list[_Told],
    ) -> None:
        assert life.reply is not None and way.route.cascade is not None
        self._stages = stages
        self._reserving = reserving
        self._clock = clock
        self._life = life
        self._way = way
        self._told = told
        self._policy: CascadePolicy = way.route.cascade
        self._reply: Reply = life.reply
        self._lines = self._reply.lines
        self._kept: _Kept | None = None

    async def go(self) -> None:
        try:
            await self._go()
        except BaseException:
            if self._kept is not None and not self._life.was_begun:  # the next model was not called yet
                self._take_back(self._kept)
            raise

    async def _go(self) -> None:
        life, legs, failure = self._life, self._way.legs, None
        for number, leg in enumerate(legs):
            kept = self._kept
            if kept is not None and not self._may_escalate(leg, number):
                break
            begun = len(life.attempts)
            try:
                if number:
                    self._leave(kept)
                    self._way.enter(life, leg)
                is_last = number + 1 >= self._way.judged
                if await self._ask(leg, is_last=is_last):
                    return
            except TollkeeperError as error:
                if self._reply.has_begun or (kept is None and not goes_on(self._stages, life, self._reply, error)):
                    raise
                failure = error
                if kept is not None:
                    break
            finally:
                if kept is not None and len(life.attempts) > begun:
                    life.attempts[begun].reason = "escalation"
        if self._kept is None:
            assert failure is not None
            raise failure
        self._return_to(self._kept)

    async def _ask(self, leg: RouteCandidate, *, is_last: bool) -> bool:
        """Ask one model; return whether its answer was sent to the client."""
        life, asked = self._life, self._life.request
        assert isinstance(asked, ChatRequest)
        begun = len(life.attempts)
        call = partial(self._call, leg)
        if is_last:
            self._reply.start_over(self._lines)
            await call(self._reply)
            return True
        held = HeldReply(ReplyFacts(life.exchange, life.id_text, life.started_at_ns // 1_000_000_000, self._clock))
        life.reply = held
        life.request, life.body = asked_whole(
            asked, life.body, wants_logprobs=self._policy.min_mean_logprob is not None
        )
        try:
            await call(held)
        except asyncio.CancelledError:
            if life.ended_by is not None:  # what it may have is used up: there is no money for another either
                self._deliver(held, life.attempts[-1])
            raise
        finally:
            life.reply, life.request = self._reply, asked
        text = held.text()
        lacks = what_lacks(text, asked, self._policy)
        self._told.append(_Told(leg.label, lacks, text.mean_logprob))
        self._kept = _Kept(leg, held, life.attempts[begun:])
        if not lacks:
            self._deliver(held, life.attempts[-1])
        return not lacks

    async def _call(self, leg: RouteCandidate, reply: Reply) -> None:
        life = self._life
        call = await self._reserving.admit(life, leg.pool)
        candidates = await self._reserving.candidates(life, call, leg.within)
        await self._stages.caller.call(life, reply, call, candidates)

    def _leave(self, kept: _Kept | None) -> None:
        """Make room for the next model: a held answer stays reserved for, a failed one's reservation is released."""
        if kept is None:
            self._reserving.leave(self._life)
        else:
            self._reserving.set_aside(self._life, kept.attempts)

    def _return_to(self, kept: _Kept) -> None:
        """Send the held answer to the client because no further model answered."""
        self._take_back(kept)
        if self._life.cache_lookup is not None:
            self._life.cache_lookup.is_lacking = True
        self._deliver(kept.held, kept.attempts[-1])

    def _take_back(self, kept: _Kept) -> None:
        """Make the held answer the request's own answer again, if the request had moved on to another model."""
        life = self._life
        if not life.earlier or life.earlier[-1].attempts is not kept.attempts:
            return
        self._reserving.leave(life)
        life.earlier, life.grant = life.earlier[:-1], life.earlier[-1].grant
        for attempt in kept.attempts:
            attempt.is_left = False
        self._way.enter(life, kept.leg)
        # The last attempt is the one that answers; each keeps its number.
        life.attempts = [one for one in life.attempts if one not in kept.attempts] + kept.attempts

    def _deliver(self, held: HeldReply, attempt: Attempt) -> None:
        request = self._way.asked
        assert isinstance(request, ChatRequest)
        self._reply.start_over(self._lines + held.own_lines)
        held.deliver(self._reply, request)
        if attempt.first_at_ns is not None:
            attempt.first_at_ns = self._clock.monotonic_ns()  # it is now that the client sees it

    def _may_escalate(self, leg: RouteCandidate, number: int) -> bool:
        """Return whether the next model may be asked: the chain has one, and the latency budget and cost limit allow
        it.
        """
        policy, life = self._policy, self._life
        if number >= self._way.judged:
            return False
        standing, is_probe = self._stages.guide.standing(life), False
        stated = (policy.latency_budget_ms, life.latency_budget_ms)
        budgets = [budget for budget in stated if budget is not None]
        if budgets:
            passed_ns = self._clock.monotonic_ns() - life.began_ns
            further_ns = round((standing.answer_seconds(leg) or 0.0) * 1e9)
            if passed_ns + further_ns > min(budgets) * _MILLION:
                if passed_ns > min(budgets) * _MILLION:
                    return False
                if not standing.may_probe(leg.model):
                    standing.leave_out(leg.model)
                    return False
                is_probe = True
        if not self._may_pay(leg, standing):
            return False
        if is_probe:
            standing.begin_probe(leg.model)
        return True

    def _may_pay(self, leg: RouteCandidate, standing: LiveModelState) -> bool:
        most, life = self._policy.max_cost_pico_usd, self._life
        if most is None:
            return True
        answers = [earlier.attempts for earlier in self._life.earlier]
        answers += [] if self._kept is None else [self._kept.attempts]
        costs = [self._stages.settlement.cost_of(attempts, life) for attempts in answers]
        costs.append(standing.cost_pico_usd(leg.model))
        known = [cost for cost in costs if cost is not None]
        return len(known) == len(costs) and sum(known) <= most  # what is not known cannot be shown to be within
