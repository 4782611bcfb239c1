"""The end of every request: settle, price, record, answer, then deferred work."""

import asyncio
import contextlib
import logging
from typing import Final

from contracts.errors import GatewayFault, InvalidUsage, TollkeeperError
from gateway.limits.clipping import most_of_all
from gateway.replies.reply import Reply
from gateway.request.clock import Clock
from gateway.request.endings import Endings
from gateway.request.request_state import RequestState
from gateway.request.reserving import Reserving
from gateway.request.stages import Stages
from gateway.wire.error_answer import send_error
from gateway.wire.public_errors import public_error

_log = logging.getLogger(__name__)

_TOLD_LIMITS: Final = frozenset(("openai_http", "litellm"))  # kinds of targets that make an answer by themselves


class Finish:
    """Ends requests. Planned requests that end in the same turn share one write of their records."""

    def __init__(self, stages: Stages, reserving: Reserving, clock: Clock, endings: Endings) -> None:
        self._stages = stages
        self._reserving = reserving
        self._clock = clock
        self._endings = endings

    def now(self, life: RequestState) -> bool:
        """End a request without a task. Return `False` if shared counters must be asked first: then call `late`."""
        if not life.ended_ns:
            life.ended_ns = self._clock.monotonic_ns()
        self._price(life)
        if not self._reserving.holds_all(life):
            return False
        self._end_planned(life)
        return True

    async def late(self, life: RequestState) -> None:
        """End a priced request that used more than this process has reserved for it, after asking the shared
        counters.
        """
        await self._reserving.reserve_late(life)
        self._end_planned(life)

    def _end_planned(self, life: RequestState) -> None:
        self._charge(life)
        self._prepare(life)
        self._note_sample(life)
        if life.error is None and self._stages.recorder.pack(life):
            if life.is_streamed:
                self._endings.add(life)
            else:
                self._endings.answer(life)
            return
        try:
            self._record(life)
        finally:
            self.conclude(life)
        self._teach_plan(life)

    async def slowly(self, life: RequestState) -> None:
        """End a request that may have to wait: for shared counters, for a rollout's comparison, or to store its
        answer.
        """
        life.ended_ns = self._clock.monotonic_ns()
        self._price(life)
        if self._stages.limiter.store.is_shared:
            await self._reserving.reserve_late(life)
        self._charge(life)
        self._prepare(life)
        self._note_sample(life)
        if life.rollout is not None:
            await self._stages.rollouts.look(life, life.exchange, life.reply)
        try:
            self._record(life)
            reply = life.reply
            if life.operation.keeps and reply is not None and life.error is None and (life.attempts or life.is_hit):
                await _keep(life, reply)
        finally:
            self.conclude(life)

    def anyhow(self, life: RequestState) -> None:
        """Finish a request after an error in its settlement: run every remaining step, even if an earlier one fails."""
        life.ended_ns = life.ended_ns or self._clock.monotonic_ns()
        for step in (self._price, self._charge, self._prepare, self._record, self.conclude):
            try:
                step(life)
            except Exception:
                _log.exception("a request could not be completed", extra={"request_id": life.id_text})

    def _price(self, life: RequestState) -> None:
        last = life.last_attempt
        if last is not None and last.is_left:
            life.model = last.model or life.model  # a later one was refused, or left, before it was called
        if life.allowance is not None:
            life.allowance.close()
        try:
            self._stages.settlement.settle(life)
        except InvalidUsage:
            # Counts no column can hold come from a broken target: the record shows them as unknown.
            _log.error("usage cannot be settled", extra={"request_id": life.id_text})
        self._note_thinking(life)
        if life.place is not None:
            tokens_in = life.usage.input_tokens if life.tokens_in is None else life.tokens_in
            tokens_out = life.usage.output_tokens if life.tokens_out is None else life.tokens_out
            life.place.leave(input_tokens=tokens_in, output_tokens=tokens_out)

    def _charge(self, life: RequestState) -> None:
        if life.is_charged:
            return
        life.is_charged = True
        self._reserving.open_grants -= life.grant is not None
        try:
            self._stages.limiter.settle(life, life.grant)
            self._note_limit(life)
            if life.is_let_go and life.owes_nothing:
                life.charged_pico_usd = 0  # what a failed model used is on no rule, as with every try that failed
            if life.earlier:
                self._reserving.settle_earlier(life)
        finally:
            if life.ticket is not None:
                self._stages.admission.settle(life.ticket)
        if life.snapshot.routes:
            self._learn_paces(life)

    def _learn_paces(self, life: RequestState) -> None:
        """Update the routes' measurements of how fast the models that answered are."""
        for attempt in life.attempts:
            model = life.model if attempt.model is None else attempt.model
            if attempt.error is None and model is not None:
                self._stages.guide.paces.learn(
                    model.id,
                    attempt.began_ns,
                    attempt.first_at_ns,
                    attempt.ended_ns,
                    attempt.result.usage.output_tokens,
                )

    def _prepare(self, life: RequestState) -> None:
        """Analyse the answer and render its end. If that fails the client gets an error; the record is written
        anyway.
        """
        reply = life.reply
        life.response_bytes = life.exchange.bytes_sent
        if reply is None or not life.attempts:
            if reply is not None and life.is_hit:
                life.response_bytes += reply.end_bytes
            return
        try:
            life.findings = reply.findings(is_complete=life.error is None)
            if life.error is None:
                life.response_bytes += reply.prepare_end(life.usage)
        except Exception:
            _log.exception("answer cannot be rendered", extra={"request_id": life.id_text})
            fail(life, GatewayFault())

    def _record(self, life: RequestState) -> None:
        """Write the record, and pass the request to the audit log and the content store.

        The record is on disk before the client gets the end of its answer. It is written in the event loop turn in
        which the request was settled, so that saved counters and the journal's position always agree.
        """
        self._stages.recorder.record(life)
        self._stages.recorder.show(life)

    def conclude(self, life: RequestState) -> None:
        """Send the end of the answer, or the error, and release all resources of the request."""
        reply, error = life.reply, life.error
        try:
            if error is not None:
                at_end = self._stages.limiter.headers_at_end(life, life.grant)
                headers = ((b"x-request-id", life.id_text.encode()), *at_end)
                shape = life.operation.errors if reply is None else reply.errors(life.operation.errors)
                send_error(life.exchange, _public_error(life, error), headers, shape)
            elif reply is not None:
                reply.conclude()
            if life.cache_lookup is not None:
                self._stages.answers.end(life, reply, life.cache_lookup, life.grant)
        finally:
            _let_go(life)

    def follow_up(self, life: RequestState) -> None:
        """Count a request whose answer was sent, and update its plan's forecast."""
        self._stages.recorder.count(life)
        self._teach_plan(life)

    def _teach_plan(self, life: RequestState) -> None:
        """Update the forecast of the plan by which an answer was made."""
        plan, tokens_in, tokens_out, last = life.plan, life.tokens_in, life.tokens_out, life.last_attempt
        if life.teaches_plan and plan is not None and tokens_in and tokens_out and last is not None:
            reason = life.finish_reason or last.result.finish_reason
            now_ns = life.settled_ns or self._clock.steady_ns()
            plan.forecast.learn(now_ns, life.prompt_bytes, tokens_in, tokens_out, reason, life.choices)

    @staticmethod
    def _note_sample(life: RequestState) -> None:
        """Add the predictions for all replicas to the record, if this request is one of the sampled ones."""
        if life.choice is not None and life.choice.sample is not None:
            life.add_decision("replica", life.choice.sample.facts())
            life.template = None  # plans' templates have no decisions

    @staticmethod
    def _note_thinking(life: RequestState) -> None:
        """Report reasoning tokens beyond the key's cap on the record, and in the headers of an answer that is not
        streamed.
        """
        if life.key is None or life.plan is not None:  # keys with a cap have no plans
            return
        cap = life.key.policy.max_thinking_tokens
        thought = None if cap is None else life.usage.output_reasoning
        if cap is None or thought is None or thought <= cap or life.is_hit:
            return
        life.thinking_over = thought - cap
        if life.reply is not None:
            said = ((b"x-tollkeeper-thinking-tokens", b"%d" % thought), (b"x-tollkeeper-thinking-cap", b"%d" % cap))
            life.reply.add_headers(said)

    def _note_limit(self, life: RequestState) -> None:
        """Record in the target's health whether it respected max_tokens."""
        last = life.last_attempt
        if last is None or last.is_left:
            return
        most = most_of_all(life, life.grant)
        if most is None or last.target.kind not in _TOLD_LIMITS:
            return
        made = life.tokens_out if life.teaches_plan else last.usage.output_tokens
        if made is None:
            return
        is_ignored = made > most
        if is_ignored or last.result.finish_reason == "length":
            health = self._stages.caller.health.of(last.target)
            health.note_limit(self._clock.monotonic_ns(), is_ignored=is_ignored)


def fail(life: RequestState, error: TollkeeperError) -> None:
    """Set the error of a request, and of its attempt in progress."""
    life.error = error
    last = life.last_attempt
    if last is not None and last.error is None:
        last.error = error


def _let_go(life: RequestState) -> None:
    # They lead back here, and would wait for the cycle collector, with all of the request's body.
    life.reply = life.allowance = life.task = life.run = life.sent = life.call = None
    life.is_over = True
    if life.error is not None:
        life.error.__traceback__ = None
    for attempt in life.attempts:
        if attempt.error is not None:
            attempt.error.__traceback__ = None
    if life.ending is not None and not life.ending.done():
        life.ending.set_result(None)


async def _keep(life: RequestState, reply: Reply) -> None:
    """Store the answer. A failure, or a client that disconnects, does not change the answer."""
    keeping = asyncio.ensure_future(reply.keep())
    while not keeping.done():
        # The client's leaving ends nothing; a failure is told below.
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await asyncio.shield(keeping)
    error = asyncio.CancelledError() if keeping.cancelled() else keeping.exception()
    if error is not None:
        _log.error("an answer could not be cached", exc_info=error, extra={"request_id": life.id_text})


def _public_error(life: RequestState, error: TollkeeperError) -> TollkeeperError:
    """Return the error as the caller may see it; what is withheld is logged for operators."""
    shown = public_error(
        error,
        model=life.requested_model,
        request_id=life.id_text,
        body=life.body,
        targets=[attempt.target for attempt in life.attempts],
    )
    if shown is not error and not life.attempts:  # else the line of its last attempt has it
        _log.warning(
            "request failed",
            extra={"request_id": life.id_text, "code": error.error_code, "reason": error.log_message},
        )
    return shown
