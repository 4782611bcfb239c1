"""The facts of one request while it lives: what each stage learned, for settlement and the record."""

from typing import Final
from uuid import UUID

import msgspec

from backends.segment_log.slot_table import NO_SLOT
from contracts.access.identity import ANONYMOUS, Identity
from contracts.api.generation import Result
from contracts.api.requests import AnyRequest
from contracts.errors import (
    EngineUnavailable,
    InvalidRequest,
    TargetMisconfigured,
    TollkeeperError,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamUnreachable,
)
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.pricing.prices import UNPRICED, Cost
from contracts.pricing.service_tiers import BATCH, UNDECIDED
from contracts.recording.records import Arm, AttemptReason, CountMethod, Outcome
from contracts.rules.limits import PriorityClass
from contracts.serving.caching import CacheOutcome, CachePolicy
from contracts.serving.configuration import KeyEntry, ModelSpec, Snapshot, TargetSpec
from contracts.serving.rollouts import RolloutSpec
from gateway.guardrails.request_guard import RequestGuard
from gateway.limits.reservation import Reservation
from gateway.records.trace_context import UNTRACED, TraceContext
from gateway.replies.progress import Progress
from gateway.routing.replicas.choice import Choice

NO_RESULT: Final = Result()

# What says that a target did no work for the request.
NEVER_BEGUN: Final = (
    EngineUnavailable,
    InvalidRequest,
    TargetMisconfigured,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamUnreachable,
)


class Attempt(msgspec.Struct):
    """One try at a target. Times are monotonic nanoseconds except `started_at_ns`."""

    number: int
    target: TargetSpec
    reason: AttemptReason
    started_at_ns: int  # Unix
    began_ns: int
    ended_ns: int = 0
    progress: Progress = msgspec.field(default_factory=Progress)
    result: Result = NO_RESULT
    error: TollkeeperError | None = None
    usage: Usage = UNKNOWN_USAGE
    count_method: CountMethod = "none"
    cost: Cost = UNPRICED
    model: ModelSpec | None = None  # that it was asked as; none: the request's
    is_free: bool = False  # it failed and is not charged; known once it is settled
    is_left: bool = False  # by its request for another model: nothing is held for it, or what is is settled by itself

    @property
    def was_begun(self) -> bool:
        """Say whether the target may have worked on it: one that refused or was never reached has not."""
        return self.error is None or self.progress.tokens > 0 or not isinstance(self.error, NEVER_BEGUN)

    @property
    def was_unseen(self) -> bool:
        """Say that no token was seen on its way, and that the target counted none but those of its usage."""
        result = self.result
        return self.progress.first_at_ns is None and (
            result.engine_output_tokens is None
            and result.recompute_tokens is None
            and result.overrun_tokens is None
            and result.wasted_tokens is None
        )


class Life(msgspec.Struct):
    """One request from its arrival to its record."""

    id: UUID
    started_at_ns: int  # Unix
    began_ns: int  # monotonic
    snapshot: Snapshot
    body: bytes = b""  # as the application sent it; once it is admitted, the chat that it was translated into
    request_bytes: int = 0  # of what the application sent
    api: str = "chat.completions"
    operation: str = "chat"
    is_batched: bool = False  # asked by a batch, and priced as such
    key: KeyEntry | None = None
    who: Identity = ANONYMOUS
    is_authenticated: bool = False
    request: AnyRequest | None = None
    response_bytes: int = 0
    model: ModelSpec | None = None
    requested_model: str = ""
    admitted_ns: int | None = None
    ended_ns: int = 0
    attempts: list[Attempt] = []
    error: TollkeeperError | None = None
    usage: Usage = UNKNOWN_USAGE
    count_method: CountMethod = "none"
    cost: Cost = UNPRICED
    trace: TraceContext = UNTRACED  # the caller's
    span_id: bytes = b""  # the request's own, where there is a trace
    is_traced: bool = False  # spans are sent of it, and the target's belong to those of its attempts
    queued_ns: int | None = None  # monotonic: when its first wait before a pool began
    run_id: str = ""
    conversation_id: str = ""
    route_decision: str = ""
    route_state: str = ""  # why its route could not read the prompt, so that the default took it
    set_fields: dict[str, object] | None = None  # what the model's route sets in the request
    priority: PriorityClass = "standard"
    wait_ns: int | None = None  # in the queue before the pool
    finish_reason: str = ""  # where the gateway ended the answer, rather than the model
    limit: str = ""  # the rule that refused or clipped it
    reserved_tokens: int | None = None
    charges: list[tuple[int, int]] = []  # nanoseconds from the start, tokens
    charged_pico_usd: int | None = None
    overdraft_tokens: int | None = None
    overdraft_pico_usd: int | None = None
    delivered_tokens: int | None = None  # of an answer that its allowance ended
    thinking_over: int | None = None  # reasoning tokens beyond the key's cap
    tool_calls: int | None = None  # in the answer, where tools were offered
    schema_failed: bool | None = None  # JSON was asked for, and the answer's text is none
    route: str = ""  # that it asked for; empty: for a model
    latency_budget_ms: int | None = None  # that the caller wants kept, for the whole answer
    regions: frozenset[str] | None = None  # where it may be served; none: anywhere
    cache: CachePolicy | None = None  # of the route, else of the model
    cache_outcome: CacheOutcome = ""
    choice: Choice | None = None  # of the targets to be tried
    rollout: RolloutSpec | None = None  # that it takes part in
    arm: Arm = ""  # of that
    left_first_for: str = ""  # the error's code for which the first model on its way did not answer
    guard: RequestGuard | None = None  # none: no guardrail covers it
    reservation: Reservation | None = None  # what it holds of its counters; none: no rule covers it
    sent_slot: int = NO_SLOT  # its entry among the requests that are with a target

    @property
    def output_so_far(self) -> int:
        """Return how many tokens of its answer have passed."""
        return sum([attempt.progress.tokens for attempt in self.answering_attempts])

    @property
    def asked_tier(self) -> str:
        """Return the service tier that the request is to be served at: "auto" where its provider is to choose.

        Empty: the standard one.
        """
        asked = "" if self.request is None else self.request.asked_tier
        return asked or (BATCH if self.is_batched else "")

    def tier_of(self, attempt: Attempt) -> str:
        """Return the service tier that an attempt is priced as: what its target reported, else what was asked."""
        reported = attempt.result.service_tier
        if reported is None:
            reported = attempt.progress.service_tier
        if reported is None:
            reported = "" if self.asked_tier == UNDECIDED else self.asked_tier
        return reported or (BATCH if self.is_batched else "")

    @property
    def is_hit(self) -> bool:
        """Say whether it was answered with a kept answer, and no model was asked."""
        return self.cache_outcome == "hit" or self.cache_outcome == "semantic_hit"

    @property
    def was_begun(self) -> bool:
        """Say whether the model that it was led to last may have worked on it."""
        return any([attempt.was_begun and not attempt.is_left for attempt in self.attempts])

    @property
    def owes_nothing(self) -> bool:
        """Return whether no attempt at the model that it was led to last is charged. Known once it is settled."""
        return all([attempt.is_free or attempt.is_left for attempt in self.attempts])

    @property
    def last_attempt(self) -> Attempt | None:
        """Give the attempt whose answer the client got, or the last that failed."""
        return self.attempts[-1] if self.attempts else None

    @property
    def answering_attempts(self) -> list[Attempt]:
        """Give the attempts whose output is the answer: the last, and those that it continued."""
        return answering(self.attempts)

    @property
    def learned_of(self) -> Attempt | None:
        """Give the attempt that tells of the request's model; `None` where that was not called."""
        last = self.last_attempt
        return None if last is None or last.is_left else last

    @property
    def outcome(self) -> Outcome:
        """Say how it ended: ok, cancelled by the client, rejected before any model, or failed at one."""
        if self.error is None:
            return "ok"
        if self.error.code == "client_closed_request":
            return "cancelled"
        return "error" if self.attempts else "rejected"

    @property
    def status(self) -> int:
        """Give the HTTP status that the outcome stands for, also where a stream had already said 200."""
        return 200 if self.error is None else self.error.status


def answering(attempts: list[Attempt]) -> list[Attempt]:
    """Give those attempts whose output is an answer: the last, and those that it continued."""
    if len(attempts) < 2:
        return attempts
    chain: list[Attempt] = []
    for attempt in reversed(attempts):
        chain.insert(0, attempt)
        if attempt.reason != "continuation":
            break
    return chain
