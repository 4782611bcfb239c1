"""Run every request through its list of stages to its end, where it is settled and recorded.

A request needs no asyncio task while no stage has to wait. The first stage that waits gets a task, which continues with
the rest of the list.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial

from backends.llm.base import SendAgain
from backends.processes.at_once import at_once
from backends.processes.native import mypyc_attr
from contracts.errors import ClientGone, ContentFiltered, GatewayFault, MalformedBody, TollkeeperError
from contracts.serving.configuration import KeyEntry
from contracts.serving.rollouts import RolloutSpec
from contracts.serving.routes import RouteSpec
from gateway.apis.operations import Operation
from gateway.guardrails.request_guard import cut_by
from gateway.replies.reply import GeneratedReply, Reply
from gateway.request.clock import Clock
from gateway.request.context import read_trace
from gateway.request.endings import Endings
from gateway.request.finish import Finish, fail
from gateway.request.pipeline import Admit, AnswerFromCache, Call, FindWay, Inspect, Observe, Understand
from gateway.request.plans.cache_hits import CacheHits
from gateway.request.plans.plan import RequestPlan
from gateway.request.plans.planned_requests import PlannedRequests
from gateway.request.plans.plans import Plans
from gateway.request.request_state import Driver, RequestState, Stage
from gateway.request.reserving import Reserving
from gateway.request.stages import Stages
from gateway.routing.attempts.attempt_run import AttemptRun
from gateway.routing.attempts.caller import tell_how_far
from gateway.wire.exchange import Exchange

_log = logging.getLogger(__name__)

Start = Callable[[Coroutine[None, None, None]], "asyncio.Task[None]"]
_TOO_DEEP = "the body is nested too deeply"
_LEFT = "the client closed the connection before the answer was complete"


@mypyc_attr(allow_interpreted_subclasses=True)  # tests watch it
class Dispatcher(Driver):
    """Runs every request. `start` starts an asyncio task for a request that has to wait."""

    def __init__(self, stages: Stages, clock: Clock, start: Start) -> None:
        self.stages = stages
        self.clock = clock
        self.start = start
        self.plans = Plans(stages, clock)
        self.endings = Endings(stages.recorder.write, self.plans.prepare_next)
        self._reserving = Reserving(stages, clock)
        self._call = Call(stages, self._reserving, clock, self.endings.soon)
        self.hits = CacheHits(stages, clock)
        self.at_once = PlannedRequests(stages, clock, self.plans, self.hits)
        self.finish = Finish(stages, self._reserving, clock, self.endings)
        admit = Admit(stages)
        # A plan leaves out what it does not need: it knows its caller and its model, and nobody else looks.
        self._planned: tuple[Stage, ...] = (admit, self._call)
        inspect, observe = Inspect(stages, clock), Observe(stages)
        self._watched: tuple[Stage, ...] = (admit, observe, self._call)
        self._guarded: tuple[Stage, ...] = (inspect, *self._planned)
        self._guarded_watched: tuple[Stage, ...] = (inspect, *self._watched)
        self._all: tuple[Stage, ...] = (
            Understand(stages, clock),
            admit,
            observe,
            FindWay(stages),
            AnswerFromCache(stages, self._reserving),
            self._call,
        )

    @property
    def open_grants(self) -> int:
        """Return the number of reservations that requests in progress hold."""
        return self._reserving.open_grants

    def serve(
        self,
        exchange: Exchange,
        operation: Operation,
        key: KeyEntry | None = None,
        *,
        is_batched: bool = False,
        shadow: tuple[RouteSpec, RolloutSpec] | None = None,
    ) -> RequestState:
        """Serve one request from its arrival to its record. Return its state, by which it can be cancelled.

        Errors become answers. `key` is given if the caller is already known, as for a request of a batch. `is_batched`
        prices it at batch prices. `shadow` is the route and rollout of a copied request, which no client can ask for.
        """
        now_ns = self.clock.wall_ns()
        made, text = self.plans.ids.next(now_ns)
        snapshot = self.stages.directory.snapshot
        life = RequestState(self, exchange, operation, made, text, now_ns, self.clock.monotonic_ns(), snapshot)
        try:
            if operation.has_plans and key is None and self.at_once.understand(life):
                life.stages = () if life.plan is None else self._stages_of(life.plan)
                self._reserving.open_grants += life.is_hit and life.grant is not None
            else:
                self._begin(life, key, shadow)
                life.is_batched = is_batched
        except Exception:  # it is understood once more, by the stage that also says what is wrong with it
            _log.exception("a request's plan failed", extra={"request_id": text})
            self.hits.give_back(life)
            life = RequestState(self, exchange, operation, made, text, now_ns, life.began_ns, snapshot)
            self._begin(life, key, shadow)
            life.is_batched = is_batched
        self._run(life)
        return life

    def _stages_of(self, plan: RequestPlan) -> tuple[Stage, ...]:
        if plan.is_guarded:
            return self._guarded_watched if plan.is_watched else self._guarded
        return self._watched if plan.is_watched else self._planned

    def _begin(self, life: RequestState, key: KeyEntry | None, shadow: tuple[RouteSpec, RolloutSpec] | None) -> None:
        life.stages, life.plan, life.key = self._all, None, key
        life.follow(read_trace(life.exchange.headers), has_spans=self.stages.recorder.sends_spans)
        if shadow is not None:
            life.route_spec, life.rollout = shadow
            life.arm = "shadow"

    def _run(self, life: RequestState) -> None:
        """Run stages until one has to wait, or until a target has the request."""
        try:
            waiting = self._step(life)
        except TollkeeperError as error:
            fail(life, error)
        except RecursionError:  # what the reading of a body just bore, its further way may not
            fail(life, MalformedBody(_TOO_DEEP))
        except Exception:  # the edge of the data plane: one request's bug must not take the others down
            self._fault(life)
        else:
            if waiting is not None:
                self._wait(life, waiting)
                return
            if life.sent is not None:
                self.endings.once_sent(life)
                return
        self._finish(life)

    @staticmethod
    def _step(life: RequestState) -> Awaitable[None] | None:
        """Run the next stages until one has to wait; return what it waits for, `None` if all are done."""
        while life.stage < len(life.stages):
            stage = life.stages[life.stage]
            life.stage += 1
            waiting = stage.run(life)
            if waiting is not None:
                return waiting
        return None

    def _finish(self, life: RequestState) -> None:
        try:
            if not self.finish.now(life):
                life.task = self.start(self._finish_late(life))
        except Exception:
            self._finish_anyhow(life)

    async def _finish_late(self, life: RequestState) -> None:
        life.has_task_begun = True
        try:
            await self.finish.late(life)
        except Exception:
            self._finish_anyhow(life)

    def _finish_anyhow(self, life: RequestState) -> None:
        """Finish a request whose completion has just failed, so that its client does not wait forever and no resources
        stay held.
        """
        if life.is_over:
            _log.exception("a request could not be completed", extra={"request_id": life.id_text})
            return
        self._fault(life)
        self.finish.anyhow(life)

    def _fault(self, life: RequestState) -> None:
        _log.exception("request failed because of a fault of the gateway", extra={"request_id": life.id_text})
        life.error = None
        fail(life, GatewayFault())

    # in a task

    def _wait(self, life: RequestState, waiting: Awaitable[None]) -> None:
        life.task = self.start(self._lead(life, waiting))

    async def _lead(self, life: RequestState, waiting: Awaitable[None]) -> None:
        """Wait for a stage, run the rest of the list, and end the request whatever happens."""
        life.has_task_begun = True
        try:
            await self._go_along(life, waiting)
            await self.finish.slowly(life)
        except asyncio.CancelledError:
            if not life.is_over:
                self._leave(life)
                self.finish.anyhow(life)
        except Exception:
            self._finish_anyhow(life)

    async def _go_along(self, life: RequestState, waiting: Awaitable[None]) -> None:
        """Wait for a stage, run the rest of the list, and store the outcome in the request's state."""
        is_cut = is_to_be_cancelled = False  # compiled code must not wait while it handles an error
        try:
            if life.is_left:
                if isinstance(waiting, Coroutine):
                    waiting.close()
                raise asyncio.CancelledError
            await waiting
            while (more := self._step(life)) is not None:
                await more
            if life.reply is not None:
                await life.reply.flushed()
            if life.guard is not None:
                await self._inspect(life)
        except asyncio.CancelledError:
            if life.ended_by is None:
                self._leave(life)
            else:
                is_cut = True
        except TollkeeperError as error:
            if life.ended_by is None:
                fail(life, error)
            else:  # the gateway had ended the answer, and what its target did before it was stopped changes nothing
                is_cut = is_to_be_cancelled = True
        except RecursionError:  # what the reading of a body just bore, its further way may not
            fail(life, MalformedBody(_TOO_DEEP))
        except Exception:  # as in `_run`
            self._fault(life)
            is_to_be_cancelled = life.ended_by is not None
        if is_to_be_cancelled:
            await _be_cancelled()
        if is_cut and life.ended_by is not None:
            await self._end_early(life, life.ended_by)

    async def _inspect(self, life: RequestState) -> None:
        """Let guardrails inspect the end of an answer. They may block it."""
        if life.ended_by is not None:
            await asyncio.sleep(0)  # this task is cancelled: it learns of it here
        if life.reply is None or life.is_hit:
            return
        verdict = await life.reply.inspect()
        if verdict is not None:
            why = cut_by(verdict)
            life.finish_reason = why.ends_with
            life.reply.end_early(why)

    @staticmethod
    def _leave(life: RequestState) -> None:
        """Mark the answer as cancelled: by the client that disconnected, or by the gateway that is stopping."""
        error = life.exchange.cut_by
        if error is None:
            fail(life, ClientGone(_LEFT))
            return
        if life.task is not None:
            life.task.uncancel()
        if life.reply is not None and life.reply.has_begun:
            tell_how_far(error, life)
        fail(life, error)
        for attempt in life.attempts:
            if isinstance(attempt.error, ClientGone):  # all that a cancelled attempt can know
                attempt.error = error

    async def _end_early(self, life: RequestState, why: TollkeeperError) -> None:
        """End an answer that has used up its allowance: it is a successful answer, but cut."""
        reply = life.reply
        assert reply is not None and life.task is not None
        life.task.uncancel()
        _note_delivered(life)
        if life.guard is not None and not isinstance(why, ContentFiltered):
            try:
                verdict = await reply.inspect()
            except asyncio.CancelledError:
                self._leave(life)
                return
            why = why if verdict is None else cut_by(verdict)
        self._cut(life, why)

    @staticmethod
    def _cut(life: RequestState, why: TollkeeperError) -> None:
        last, reply = life.last_attempt, life.reply
        assert last is not None and reply is not None
        last.error = None
        _note_delivered(life)
        life.finish_reason = why.ends_with
        reply.end_early(why)

    # what its connection, its target and its allowance tell of a request

    def cancel(self, life: RequestState) -> None:
        task = life.task
        if task is not None:
            if life.has_task_begun:
                task.cancel()
            else:
                life.is_left = True  # a task that is cancelled before its first step would give nothing back
        elif life.run is not None:
            self._stop(life, ClientGone(_LEFT))
            self._leave(life)
            self.endings.soon(partial(self._finish, life))

    def end_early(self, life: RequestState, why: TollkeeperError) -> None:
        task = life.task
        if task is not None:
            if not task.cancelling():  # the client has left: that must not become a good end
                life.ended_by = why
                task.cancel()
        elif life.run is not None and life.ended_by is None:
            life.ended_by = why
            self.endings.soon(partial(self._end_cut, life))

    def _end_cut(self, life: RequestState) -> None:
        """End an answer that reached its limit in the middle of a piece, after that piece has been processed."""
        why, reply = life.ended_by, life.reply
        if life.run is None or why is None or reply is None:
            return
        is_blocked = isinstance(why, ContentFiltered)
        if reply.is_complete and not is_blocked:  # meanwhile: what is complete needs no end of ours
            _be_whole(life)
            return
        self._stop(life, ClientGone(_LEFT))
        try:
            if life.guard is not None and not is_blocked:
                verdict = at_once(reply.inspect())
                why = why if verdict is None else cut_by(verdict)
            self._cut(life, why)
        except Exception:  # nobody else would end it
            self._fault(life)
        self._finish(life)

    def prepare(self, life: RequestState) -> None:
        if life.run is None:
            return
        try:
            self._call.prepare(life)
        except Exception:
            self._stop(life, GatewayFault())
            self._fault(life)
            self._finish(life)

    def reply_ended(self, life: RequestState, error: Exception | None) -> None:
        run, sent, reply = life.run, life.sent, life.reply
        if run is None or sent is None or reply is None:
            return
        if life.ended_by is not None:
            if not reply.is_complete or isinstance(life.ended_by, ContentFiltered):
                return  # it is about to be ended
            _be_whole(life)
        self.prepare(life)
        if life.run is not run:
            return
        try:
            sent.conclude(error)
            if sent.body:
                reply.served(sent.served_model, sent.served_version)
                reply.whole(sent.body)
            run.succeed(sent.account())
        except SendAgain as again:
            self._release(life)
            life.exchange.send_held_back()
            self._wait(life, self._send_again(life, run, again))
            return
        except TollkeeperError as failure:
            self._stop(life, failure)
            self._wait(life, self._go_on(life, run))
            return
        except Exception:  # the target's, or a bug: it must not take others on this turn down with it
            self._stop(life, GatewayFault())
            self._fault(life)
        else:
            self._release(life)
            life.ended_ns = run.ended_ns
            if life.guard is not None:
                self._inspect_at_once(life, reply)
        self._finish(life)

    def _inspect_at_once(self, life: RequestState, reply: Reply) -> None:
        """Let guardrails inspect the end of an answer without waiting: the guardrails of a plan never wait."""
        life.ended_ns = 0  # it ends once they have
        try:
            verdict = None if reply.passes_inspection() else at_once(reply.inspect())
        except TollkeeperError as error:
            fail(life, error)
        except Exception:
            self._fault(life)
        else:
            if verdict is not None:
                why = cut_by(verdict)
                life.finish_reason = why.ends_with
                reply.end_early(why)

    def send(self, life: RequestState) -> None:
        self.finish.conclude(life)

    def follow_up(self, life: RequestState) -> None:
        self.finish.follow_up(life)

    def _stop(self, life: RequestState, error: TollkeeperError) -> None:
        """End the attempt in progress with an error, and close its connection."""
        run = life.run
        if run is not None:
            run.fail(error)
        self._release(life)
        life.exchange.send_held_back()

    @staticmethod
    def _release(life: RequestState) -> None:
        """Release the connection; later output of the target is ignored."""
        sent = life.sent
        life.run = life.sent = None
        if sent is not None:
            sent.release()

    async def _send_again(self, life: RequestState, run: AttemptRun, again: SendAgain) -> None:
        """Repeat a request whose first attempt did no work, if the target's rules allow another attempt."""
        try:
            may = again.may is None or await again.may()
        except asyncio.CancelledError:
            run.fail(ClientGone(_LEFT))
            raise
        if may:
            life.attempts.remove(run)
            await self._go_on(life, None)
        else:
            assert again.failure is not None
            run.fail(again.failure)
            await self._go_on(life, run)

    async def _go_on(self, life: RequestState, failed: AttemptRun | None) -> None:
        """Continue with the other targets of a request whose first attempt was made without a task."""
        assert life.reply is not None
        life.to = life.template = None
        if isinstance(life.reply, GeneratedReply):
            life.reply.hold_ends(None)  # from here on chunks are sent as they come
        call = self._reserving.held_call(life)
        await self.stages.caller.call(life, life.reply, call, life.candidates, failed, is_counted=True)


def _note_delivered(life: RequestState) -> None:
    """Store how many tokens the allowance let through, if the allowance ended the answer."""
    if life.allowance is not None and life.allowance.is_over:
        life.delivered_tokens = life.allowance.delivered


def _be_whole(life: RequestState) -> None:
    """Mark an answer that was about to be cut as complete: it ended by itself before that."""
    life.ended_by = None
    life.limit = ""


async def _be_cancelled() -> None:
    """Consume the pending cancellation of a task that ends its answer early, before it interrupts the remaining
    work.
    """
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
