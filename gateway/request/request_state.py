"""The state of one request from its arrival to its record: what it asks for, its resources, each stage's results."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from backends.llm.base import ModelCall
from backends.llm.http.quick_target import SentRequest
from backends.processes.native import mypyc_attr
from backends.segment_log.slot_table import NO_SLOT
from contracts.access.identity import ANONYMOUS, Identity
from contracts.api.answer_parts import NOTHING_FOUND, Findings
from contracts.api.requests import AnyRequest
from contracts.errors import TollkeeperError
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.pricing.prices import UNPRICED, Cost
from contracts.pricing.service_tiers import BATCH, UNDECIDED
from contracts.recording.ids import UUID_RANDOM_TAIL
from contracts.recording.records import Arm, CountMethod, Outcome
from contracts.rules.limits import PriorityClass
from contracts.serving.caching import CacheOutcome, CachePolicy
from contracts.serving.configuration import KeyEntry, ModelSpec, Snapshot, TargetSpec
from contracts.serving.rollouts import RolloutSpec
from contracts.serving.routes import RouteSpec
from gateway.guardrails.request_guard import RequestGuard
from gateway.limits.admission import Ticket
from gateway.limits.reservation import Grant, Reservation
from gateway.records.trace_context import UNTRACED, TraceContext
from gateway.replies.allowance import Allowance
from gateway.request.attempt import Attempt, answering
from gateway.request.endings import Ending
from gateway.routing.replicas.choice import Choice
from gateway.wire.exchange import Exchange

if TYPE_CHECKING:
    from gateway.apis.operations import Operation
    from gateway.cache.lookup import CacheLookup
    from gateway.limits.queue.pool_queue import Place
    from gateway.replies.reply import Reply
    from gateway.request.charges.charging import EarlierAnswer
    from gateway.request.plans.plan import PlannedTarget, RequestPlan
    from gateway.request.plans.record_shapes import RecordTemplate
    from gateway.routing.attempts.attempt_run import AttemptRun
    from gateway.routing.routes.fallback_chain import FallbackChain


# Under names of this module: they are read for every request, and compiled code looks up another module's in a table.
_ANONYMOUS: Final = ANONYMOUS
_NOTHING_FOUND: Final = NOTHING_FOUND
_UNTRACED: Final = UNTRACED
_UNKNOWN_USAGE: Final = UNKNOWN_USAGE
_UNPRICED: Final = UNPRICED


@mypyc_attr(allow_interpreted_subclasses=True)
class Driver(ABC):
    """The interface of the object that runs requests and receives their events."""

    @abstractmethod
    def cancel(self, life: "RequestState") -> None:
        """Cancel a request: its client disconnected, or the gateway is stopping."""

    @abstractmethod
    def end_early(self, life: "RequestState", why: TollkeeperError) -> None:
        """End an answer here; what was sent is a successful answer."""

    @abstractmethod
    def prepare(self, life: "RequestState") -> None:
        """Prepare the reply to a request that has been sent to its target."""

    @abstractmethod
    def reply_ended(self, life: "RequestState", error: Exception | None) -> None:
        """Handle the end of the target's reply to a request without a task."""

    @abstractmethod
    def send(self, life: "RequestState") -> None:
        """Send the end of an answer whose record has been written."""

    @abstractmethod
    def follow_up(self, life: "RequestState") -> None:
        """Update metrics and estimates from an ended request."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Stage(ABC):
    """One step of a request's path. A plan lists the stages that its requests need."""

    @abstractmethod
    def run(self, life: "RequestState") -> Awaitable[None] | None:
        """Run the stage. Return `None` if it is done, else what has to be awaited. Raise the error that refuses the
        request.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestState(Ending):
    """The state of one request. Times are monotonic nanoseconds except `started_at_ns`, which is Unix time."""

    def __init__(
        self,
        driver: Driver | None,  # none: nothing is told of it
        exchange: Exchange,
        operation: "Operation",
        id_bytes: bytes,
        id_text: str,
        started_at_ns: int,  # Unix
        began_ns: int,
        snapshot: Snapshot,
    ) -> None:
        self._driver = driver
        # Where it is on its path.
        self.stages: Sequence[Stage] = ()
        self.stage = 0  # the next
        self.task: asyncio.Task[None] | None = None  # that leads it, once it has had to wait
        self.has_task_begun = False
        self.is_left = False  # by its client, before its task had begun
        self.is_over = False  # it has its record
        self.ending: asyncio.Future[None] | None = None  # done once it is over, where somebody waits for that
        self.plan: RequestPlan | None = None  # what is alike of all requests of its key for its model
        self.to: PlannedTarget | None = None  # the target that it was sent to at once
        self.candidates: Sequence[TargetSpec] = ()
        self.run: AttemptRun | None = None  # the try that is in progress without a task
        self.sent: SentRequest | None = None  # and its reply
        self.call: ModelCall | None = None  # prepared, where its prompt had to be counted
        self.counted_input: int | None = None  # that prompt's tokens
        self.way: FallbackChain | None = None
        # What came.
        self.exchange = exchange
        self.operation = operation
        self.id_bytes = id_bytes
        self.id_text = id_text
        self.started_at_ns = started_at_ns
        self.began_ns = began_ns
        self.snapshot = snapshot
        self.body = exchange.body  # as the application sent it; once it is admitted, the chat that it was translated to
        self.request_bytes = len(exchange.body)  # of what the application sent
        self.prompt_bytes = 0  # of a planned one, for estimating
        self.is_batched = False  # asked by a batch, and priced as such
        # Who asks, and for what.
        self.key: KeyEntry | None = None
        self.who: Identity = _ANONYMOUS
        self.is_authenticated = False
        self.request: AnyRequest | None = None
        self.requested_model = ""
        self.output_limit: int | None = None  # of each choice, as it was asked
        self.choices = 1
        self.is_streamed = False
        self.model: ModelSpec | None = None
        self.route = ""  # the id of the route that it asked for; empty: it asked for a model
        self.route_spec: RouteSpec | None = None
        self.trace: TraceContext = _UNTRACED  # the caller's
        self.span_id = b""  # the request's own, where there is a trace
        self.is_traced = False  # spans are sent of it, and the target's belong to those of its attempts
        self.run_id = ""
        self.conversation_id = ""
        self.priority: PriorityClass = "standard"
        self.latency_budget_ms: int | None = None  # that the caller wants kept, for the whole answer
        self.set_fields: dict[str, object] | None = None  # what the model's route sets in the request
        # What it holds, and gives back at its end.
        self.reply: Reply | None = None
        self.ticket: Ticket | None = None
        self.grant: Grant | None = None  # none: no rule counts it
        self.allowance: Allowance | None = None
        self.place: Place | None = None  # in the model's pool
        self.earlier: Sequence[EarlierAnswer] = ()  # answers that were not good enough, and are paid for
        self.cache_lookup: CacheLookup | None = None  # if the model or route caches answers
        self.guard: RequestGuard | None = None  # none: no guardrail covers it
        self.is_like_its_plan = False  # its record says of the caller what those of its plan do
        self.sent_slot = NO_SLOT  # its entry among the requests that are with a target
        self.is_prepared = False  # its reply, for an answer that comes without a task
        self.is_charged = False
        self.is_let_go = False  # what it held for a model that it left was given back
        # How it went.
        self.template: RecordTemplate | None = None  # of its record, where that is like its plan's others
        self.packed = b""  # its record, until that is written
        self.teaches_plan = False  # its plan's forecast learns from it, in place of the estimators
        self.admitted_ns: int | None = None
        self.queued_ns: int | None = None  # when its first wait before a pool began
        self.wait_ns: int | None = None  # in the queue before the pool
        self.ended_ns = 0
        self.settled_ns = 0  # by the clock of limits
        self.attempts: list[Attempt] = []
        self.error: TollkeeperError | None = None
        self.ended_by: TollkeeperError | None = None  # what the answer ran out of, where the gateway ended it
        self.response_bytes = 0
        self.usage: Usage = _UNKNOWN_USAGE
        self.tokens_in: int | None = None  # of that
        self.tokens_out: int | None = None
        self.count_method: CountMethod = "none"
        self.cost: Cost = _UNPRICED
        self.finish_reason = ""  # where the gateway ended the answer, rather than the model
        self.limit = ""  # the rule that refused or clipped it
        self.reserved_tokens: int | None = None
        self.charges: Sequence[tuple[int, int]] = ()  # nanoseconds from the start, tokens
        self.charged_pico_usd: int | None = None
        self.overdraft_tokens: int | None = None
        self.overdraft_pico_usd: int | None = None
        self.delivered_tokens: int | None = None  # of an answer that its allowance ended
        self.thinking_over: int | None = None  # reasoning tokens beyond the key's cap
        self.findings: Findings = _NOTHING_FOUND  # in the answer, where tools were offered or JSON was asked for
        self.prompt_marks: Sequence[int] = ()  # checksums of its prompt's parts, where they are wanted
        # How its route led it.
        self.route_decision = ""
        self.route_state = ""  # why its route could not read the prompt, so that the default took it
        self.regions: frozenset[str] | None = None  # where it may be served; none: anywhere
        self.cache: CachePolicy | None = None  # of the route, else of the model
        self.cache_outcome: CacheOutcome = ""
        self.choice: Choice | None = None  # of the targets to be tried
        self.rollout: RolloutSpec | None = None  # that it takes part in
        self.arm: Arm = ""  # of that
        self.left_first_for = ""  # the error's code for which the first model on its way did not answer

    @property
    def id(self) -> UUID:
        """Return the request's id."""
        return UUID(bytes=self.id_bytes)

    def follow(self, trace: TraceContext, *, has_spans: bool) -> None:
        """Join the caller's trace. With `has_spans` the gateway sends spans of its own."""
        self.trace = trace
        if trace.trace_id:
            self.span_id = self.id_bytes[-UUID_RANDOM_TAIL:]
            self.is_traced = has_spans

    @property
    def reservation(self) -> Reservation | None:
        """Return what it holds of its counters; `None` if no rule covers it."""
        return None if self.grant is None else self.grant.reservation

    def has_client_left(self) -> bool:
        """Return whether the client has disconnected."""
        return self.exchange.is_gone

    @property
    def output_so_far(self) -> int:
        """Return how many tokens of the answer have passed through the gateway."""
        return sum([attempt.tokens for attempt in self.answering_attempts])

    @property
    def asked_tier(self) -> str:
        """Return the service tier that is sent to the provider; "auto": the provider chooses; empty: the standard
        tier.
        """
        asked = "" if self.request is None else self.request.asked_tier
        return asked or (BATCH if self.is_batched else "")

    def tier_of(self, attempt: Attempt) -> str:
        """Return the service tier at which an attempt is priced: as the target reported it, else as asked."""
        reported = attempt.result.service_tier
        if reported is None:
            reported = attempt.service_tier
        if reported is None:
            reported = "" if self.asked_tier == UNDECIDED else self.asked_tier
        return reported or (BATCH if self.is_batched else "")

    @property
    def is_hit(self) -> bool:
        """Return whether the answer came from the response cache and no model was called."""
        return self.cache_outcome == "hit" or self.cache_outcome == "semantic_hit"

    @property
    def was_begun(self) -> bool:
        """Return whether the last model of the fallback chain may have done work."""
        return any([attempt.was_begun and not attempt.is_left for attempt in self.attempts])

    @property
    def owes_nothing(self) -> bool:
        """Return whether no attempt at the last model is charged. Known after settlement."""
        return all([attempt.is_free or attempt.is_left for attempt in self.attempts])

    @property
    def last_attempt(self) -> Attempt | None:
        """Return the attempt whose answer the client got, or the last that failed."""
        return self.attempts[-1] if self.attempts else None

    @property
    def answering_attempts(self) -> list[Attempt]:
        """Return the attempts that make up the answer: the last one, and those that it continued."""
        return answering(self.attempts)

    @property
    def learned_of(self) -> Attempt | None:
        """Return the attempt that describes the request's model; `None` if that model was not called."""
        last = self.last_attempt
        return None if last is None or last.is_left else last

    @property
    def outcome(self) -> Outcome:
        """Return the outcome: ok, cancelled by the client, rejected before any model was called, or error."""
        if self.error is None:
            return "ok"
        if self.error.code == "client_closed_request":
            return "cancelled"
        return "error" if self.attempts else "rejected"

    @property
    def status(self) -> int:
        """Return the HTTP status of the outcome, even if a stream had already begun with 200."""
        return 200 if self.error is None else self.error.status

    def add_decision(self, part: str, decision: object) -> None:
        """Add a field to the JSON object of routing decisions on the record. A later value of the same name replaces
        it.
        """
        said = msgspec.json.encode({part: decision}).decode()
        before = self.route_decision
        self.route_decision = f"{before[:-1]},{said[1:]}" if before else said

    def end_early(self, why: TollkeeperError) -> None:
        """End the answer here as a successful one: its allowance is used up, or a guardrail stops it."""
        if self._driver is not None:
            self._driver.end_early(self, why)

    # what its connection and its target tell it

    def cancel(self) -> None:
        """Cancel the request because its client disconnected."""
        if self._driver is not None and not self.is_over:
            self._driver.cancel(self)

    async def ended(self) -> None:
        """Wait until the record is written. If the waiting task is cancelled, the request is cancelled too, and still
        awaited.
        """
        while not self.is_over:
            if self.ending is None:
                self.ending = asyncio.get_running_loop().create_future()
            try:
                await asyncio.shield(self.ending)
            except asyncio.CancelledError:
                self.cancel()

    def prepare(self) -> None:
        if self._driver is not None:
            self._driver.prepare(self)

    def reply_ended(self, error: Exception | None) -> None:
        if self._driver is not None:
            self._driver.reply_ended(self, error)

    def send(self) -> None:
        if self._driver is not None:
            self._driver.send(self)

    def follow_up(self) -> None:
        if self._driver is not None:
            self._driver.follow_up(self)
