"""Build the record of a finished request once, write it to the journal, and pass it to tracing."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from backends.processes.native import mypyc_attr
from contracts.api.chat import ChatRequest, TranslatedChat
from contracts.api.generation import Result
from contracts.api.requests import AnyRequest
from contracts.errors import ClientGone, HedgeLost
from contracts.metering.gaps import gap_units, pack_gaps
from contracts.recording.records import AttemptRecord, GapClock, RequestRecord, decode_record, encode_record
from gateway.apis.prompt_marks import marks_of
from gateway.limits.demand import INPUT
from gateway.limits.estimates.counting import TokenEstimator, prompt_bytes
from gateway.observability.metrics.request_counts import RequestCounts
from gateway.records.content import ContentKeeper
from gateway.records.journal import Journal
from gateway.records.request_audit import RequestAudit
from gateway.records.sent_requests import BATCHED, STREAM, TEMPERATURE, TEMPERED, SentRequests
from gateway.records.trace_context import UNTRACED, TraceContext
from gateway.records.upstream_facts import upstream_facts
from gateway.request.attempt import NO_RESULT, Attempt
from gateway.request.endings import Ending
from gateway.request.plans.record_shapes import since_ns
from gateway.request.request_state import RequestState

if TYPE_CHECKING:
    from gateway.request.plans.plan import PlannedTarget, RequestPlan

_log = logging.getLogger(__name__)

_COUNTED: Final = "engine"  # the kind of target whose prompts are counted, not estimated

EmitSpans = Callable[[RequestRecord, TraceContext, RequestState | None], None]
CountName = Literal["engine_output_tokens", "recompute_tokens", "overrun_tokens", "wasted_tokens"]


@mypyc_attr(allow_interpreted_subclasses=True)  # tests watch it
class Recorder:
    """Writes records of requests whose tenant is known. Other requests are only counted, so that a flood cannot fill a
    disk.
    """

    def __init__(
        self,
        journal: Journal,
        gateway: str,
        emit_spans: EmitSpans | None = None,
        counts: RequestCounts | None = None,
        content: ContentKeeper | None = None,
        audit: RequestAudit | None = None,
        sent: SentRequests | None = None,
        inputs: TokenEstimator | None = None,
    ) -> None:
        self._journal = journal
        self.gateway = gateway  # its name
        self._emit_spans = emit_spans
        self._counts = counts
        self.content = content  # none: nothing of what was said is kept
        self.audit = audit  # none: no tenant's requests are audited
        self.sent = sent  # none: a crash leaves no record of what was in progress
        self._inputs = inputs or TokenEstimator()
        self.recorded_requests = 0
        self.unauthenticated_requests = 0
        self.unrecorded_rejections = 0

    @property
    def sends_spans(self) -> bool:
        """Return whether the gateway sends spans of every request."""
        return self._emit_spans is not None

    def note_sent(self, life: RequestState) -> None:
        """Store a provisional record just before a request is sent to a target. If the process dies now, it becomes the
        record.
        """
        sent, attempt = self.sent, life.last_attempt
        if sent is None or attempt is None or not life.is_authenticated:
            return
        if life.plan is not None and life.to is not None:
            life.sent_slot = self._begin_planned(sent, life, life.plan, life.to)
            if life.is_streamed:
                sent.watch(life.sent_slot, life, life.reservation)
            return
        before = life.sent_slot
        life.sent_slot = self._begin_sent(sent, life, attempt)
        sent.watch(life.sent_slot, life, life.reservation)
        if before >= 0:  # only now: at no moment is there none
            sent.end(before)

    def _begin_planned(self, sent: SentRequests, life: RequestState, plan: "RequestPlan", to: "PlannedTarget") -> int:
        counted, request = life.counted_input, life.request
        flags = STREAM if life.is_streamed else 0
        if life.is_like_its_plan:
            record = to.sent_record
            if request is not None and request.temperature is not None:
                flags |= TEMPERED
                record = TEMPERATURE.pack(request.temperature) + record
        else:
            record = self._packed(life)
        return sent.begin(
            life.id_bytes,
            life.started_at_ns,
            0 if life.admitted_ns is None else life.admitted_ns - life.began_ns,
            life.request_bytes,
            plan.forecast.expected_input(life.prompt_bytes) if counted is None else counted,
            life.output_limit,
            life.reservation,
            life.choices,
            flags,
            record,
        )

    def _begin_sent(self, sent: SentRequests, life: RequestState, attempt: Attempt) -> int:
        request = life.request
        is_streamed = request is not None and request.is_streamed
        return sent.begin(
            life.id_bytes,
            life.started_at_ns,
            0 if life.admitted_ns is None else max(life.admitted_ns - life.began_ns, 0),
            life.request_bytes,
            self._input_of(life, attempt),
            None if request is None else request.output_limit,
            life.reservation,
            1 if request is None else request.choice_count,
            (STREAM if is_streamed else 0) | (BATCHED if life.is_batched else 0),
            self._packed(life),
        )

    def _input_of(self, life: RequestState, attempt: Attempt) -> int:
        """Return the tokens of a prompt: as counted for the reservation, else estimated."""
        reservation, tokens_in = life.reservation, 0
        if reservation is not None and attempt.target.kind == _COUNTED:
            tokens_in = reservation.reserved(INPUT)
        if tokens_in:
            return tokens_in
        model = life.model if attempt.model is None else attempt.model
        name = life.requested_model if model is None else model.id
        return self._inputs.estimate(name, prompt_bytes(life.body), life.who.tenant)

    @staticmethod
    def mark_prompt(life: RequestState) -> None:
        """Store the checksums of a prompt's parts on the record, for agent sessions (requests that offer tools)."""
        request = life.request
        if life.conversation_id and isinstance(request, ChatRequest) and request.tools:
            native = request.native if isinstance(request, TranslatedChat) else None
            body = life.exchange.body
            life.prompt_marks = marks_of(body, native.fields if native is not None and native.body is body else None)

    def forget_sent(self, slot: int) -> None:
        """Delete the provisional record of a request that could not be sent."""
        if self.sent is not None:
            self.sent.end(slot)

    def record_lost(self, record: RequestRecord) -> bool:
        """Write the record of a request that a crash ended; return whether it was written."""
        if not self._journal.append(record.started_at_ns, encode_record(record)):
            return False
        self.recorded_requests += 1
        if self._counts is not None:
            self._counts.note_lost(record)
        self._show(record)
        return True

    def record(self, life: RequestState) -> None:
        """Write a request's record, and a record for each attempt if there was more than one."""
        try:
            self._record(life)
        finally:
            self.forget_sent(life.sent_slot)

    def _packed(self, life: RequestState) -> bytes:
        """Return a request's packed record, by its plan's template if the request was sent as its plan says."""
        template = life.template
        if template is not None:
            return template.pack(life)
        return encode_record(_request_record(life, self.gateway))

    def pack(self, life: RequestState) -> bool:
        """Pack the record of a request whose plan has a template; return whether it has one."""
        if life.template is None:
            return False
        life.packed = life.template.pack(life)
        return True

    def write(self, lives: Sequence[Ending]) -> None:
        """Write the records that `pack` made."""
        packed: list[tuple[int, bytes]] = []
        for life in lives:
            if isinstance(life, RequestState):
                packed.append((life.started_at_ns, life.packed))
        if len(packed) == 1:
            self.recorded_requests += self._journal.append(*packed[0])
        else:
            self.recorded_requests += self._journal.append_each(packed)
        watched: list[RequestState] = []
        for life in lives:
            if isinstance(life, RequestState):
                self.forget_sent(life.sent_slot)
                if life.plan is not None and life.plan.is_watched:
                    watched.append(life)
        if watched:
            self._show_each(watched)

    def show(self, life: RequestState) -> None:
        """Pass a recorded request to the audit log and the content store."""
        if self.content is not None and self.content.wants(life):
            self.content.keep(life, life.reply)
        if self.audit is not None and self.audit.wants(life):
            self.audit.note((life,))

    def _show_each(self, lives: list[RequestState]) -> None:
        """Pass requests that end together to the audit log and the content store; the audit log writes once."""
        content, audit = self.content, self.audit
        for life in lives if content is not None else ():
            try:
                if content is not None and content.wants(life):
                    content.keep(life, life.reply)
            except Exception:  # the others that end in this turn are kept all the same
                _log.exception("a request's content could not be stored", extra={"request_id": life.id_text})
        if audit is None:
            return
        try:
            audited = [life for life in lives if audit.wants(life)]
            if audited:
                audit.note(audited)
        except Exception:
            _log.exception("requests could not be audited", extra={"requests": len(lives)})

    def count(self, life: RequestState) -> None:
        """Add a request that `write` has recorded to the metrics, and pass it to tracing."""
        if self._counts is not None and life.template is not None:
            self._counts.note_alike(life, life.template.counted_as)
        if self._emit_spans is not None:
            record = decode_record(life.packed)
            assert isinstance(record, RequestRecord)
            self._emit_spans(record, life.trace, life)

    def _record(self, life: RequestState) -> None:
        if not life.is_authenticated:
            self.unauthenticated_requests += 1
            if self._counts is not None:
                self._counts.note_unknown_caller(life)
            return
        request_record = _request_record(life, self.gateway)
        if self._counts is not None:
            self._counts.note(life, request_record)
        if request_record.outcome == "rejected":
            # What lies above the bound, or is the disk's last, is for requests that were admitted; a client that
            # tries again and again must not fill it with its refusals, which used nothing.
            if not self._journal.append_all([(life.started_at_ns, encode_record(request_record))]):
                self.unrecorded_rejections += 1
                return
            self.recorded_requests += 1
            self._show(request_record, life)
            return
        if len(life.attempts) > 1:
            for attempt in life.attempts:
                record = _attempt_record(life, attempt, self.gateway)
                self._journal.append(record.started_at_ns, encode_record(record))
        if self._journal.append(life.started_at_ns, encode_record(request_record)):
            self.recorded_requests += 1
        self._show(request_record, life)

    def _show(self, request_record: RequestRecord, life: RequestState | None = None) -> None:
        if self._emit_spans is not None:
            self._emit_spans(request_record, UNTRACED if life is None else life.trace, life)


def _request_record(life: RequestState, gateway: str) -> RequestRecord:
    attempt = life.last_attempt
    made, error, guard, result = _made_by(life.answering_attempts), life.error, life.guard, _result_of(attempt)
    model = life.model.id if life.model else ""
    if not life.prompt_marks:
        Recorder.mark_prompt(life)
    return RequestRecord(
        request_id=life.id_bytes,
        started_at_ns=life.started_at_ns,
        duration_ns=max(life.ended_ns - life.began_ns, 0),
        who=life.who,
        operation=life.operation.name,
        api=life.operation.api,
        outcome=life.outcome,
        status=life.status,
        error_code=error.error_code if error else "",
        finish_reason=life.finish_reason or result.finish_reason,
        requested_model=life.requested_model,
        route=life.route or model,
        model=model,
        model_version=result.model,
        adapter=result.adapter,
        gateway=gateway,
        ttft_ns=since_ns(life.began_ns, made.first_at_ns),
        admission_ns=since_ns(life.began_ns, life.admitted_ns),
        queue_ns=result.queue_ns,
        cold_start_ns=result.cold_start_ns,
        gaps=made.gaps,
        gap_clock=made.gap_clock,
        usage=life.usage,
        count_method=life.count_method,
        engine_output_tokens=made.engine_output_tokens,
        recompute_tokens=made.recompute_tokens,
        overrun_tokens=made.overrun_tokens,
        wasted_tokens=made.wasted_tokens,
        cost_pico_usd=life.cost.total_pico_usd,
        cost_basis=life.cost.basis,
        price_version=life.cost.version,
        charged_pico_usd=life.charged_pico_usd,
        gpu=result.gpu,
        attempts=len(life.attempts),
        request_bytes=life.request_bytes,
        response_bytes=life.response_bytes,
        cache=life.cache_outcome,
        limit=life.limit,
        reserved_tokens=life.reserved_tokens,
        route_decision=life.route_decision,
        trace_id=life.trace.trace_id,
        span_id=life.span_id,
        run_id=life.run_id,
        conversation_id=life.conversation_id,
        priority=life.priority,
        wait_ns=life.wait_ns,
        charge_offsets_ns=[offset for offset, _ in life.charges],
        charge_tokens=[tokens for _, tokens in life.charges],
        overdraft_tokens=life.overdraft_tokens,
        overdraft_pico_usd=life.overdraft_pico_usd,
        thinking_over_tokens=life.thinking_over,
        tool_calls=life.findings.tool_calls,
        schema_failed=life.findings.schema_failed,
        arm=life.arm,
        rollout="" if life.rollout is None else life.rollout.id,
        verdicts=[] if guard is None else guard.verdicts,
        guard_ns=None if guard is None else guard.spent_ns,
        guard_held_ns=None if guard is None else guard.held_ns,
        unpriced_leaves=list(life.cost.unpriced),
        service_tier=life.cost.tier,
        tools=[call.name for call in life.findings.called],
        tool_marks=[call.mark for call in life.findings.called],
        prompt_marks=list(life.prompt_marks),
        provider_usage=result.provider_usage,
        **_asked_by(life.request),
        **_target_of(attempt),
        **upstream_facts(attempt.error if attempt else None, life.body),
    )


def _asked_by(request: AnyRequest | None) -> dict[str, Any]:
    """Return the record's fields about the request's body; defaults for what could not be read."""
    if request is None:
        return {}
    return {
        "stream": request.is_streamed,
        "max_tokens": request.output_limit,
        "choices": request.choice_count,
        "temperature": request.temperature,
    }


def _target_of(attempt: Attempt | None) -> dict[str, Any]:
    """Return the record's fields about the target that was called."""
    if attempt is None:
        return {}
    target = attempt.target
    return {
        "provider": target.provider or target.kind,
        "pool": target.pool,
        "replica": target.id,
        "region": target.region,
    }


def _result_of(attempt: Attempt | None) -> Result:
    return NO_RESULT if attempt is None else attempt.result


def _attempt_record(life: RequestState, attempt: Attempt, gateway: str) -> AttemptRecord:
    first_at, error = attempt.first_at_ns, attempt.error
    return AttemptRecord(
        request_id=life.id_bytes,
        number=attempt.number,
        started_at_ns=attempt.started_at_ns,
        duration_ns=max(attempt.ended_ns - attempt.began_ns, 0),
        who=life.who,
        reason=attempt.reason,
        outcome="ok" if error is None else "cancelled" if isinstance(error, ClientGone | HedgeLost) else "error",
        status=200 if error is None else error.status,
        error_code=error.error_code if error else "",
        model=attempt.model.id if attempt.model else "",
        provider=attempt.target.provider or attempt.target.kind,
        pool=attempt.target.pool,
        replica=attempt.target.id,
        region=attempt.target.region,
        gateway=gateway,
        ttft_ns=since_ns(attempt.began_ns, first_at),
        gaps=pack_gaps(attempt.gaps_for(attempt.usage.output_tokens)),
        gap_clock=_gap_clock([attempt]),
        usage=attempt.usage,
        count_method=attempt.count_method,
        cost_pico_usd=None if attempt.cost.unpriced else attempt.cost.total_pico_usd,  # it has no column to name them
        cost_basis=attempt.cost.basis,
        price_version=attempt.cost.version,
        gpu=attempt.result.gpu,
        run_id=life.run_id,
        **upstream_facts(error, life.body),
    )


class _Made(msgspec.Struct, frozen=True, gc=False):
    """What the attempts behind one answer generated together, token by token."""

    first_at_ns: int | None = None
    gaps: bytes = b""
    gap_clock: GapClock = "none"
    engine_output_tokens: int | None = None
    recompute_tokens: int | None = None
    overrun_tokens: int | None = None
    wasted_tokens: int | None = None


_UNSEEN: Final = _Made()  # of an answer that came whole from a server which counts nothing besides its usage


def _made_by(chain: list[Attempt]) -> _Made:
    if not chain or (len(chain) == 1 and chain[0].was_unseen):
        return _UNSEEN
    return _Made(
        chain[0].first_at_ns,
        pack_gaps(_gaps_of(chain)),
        _gap_clock(chain),
        _sum(chain, "engine_output_tokens"),
        _sum(chain, "recompute_tokens"),
        _sum(chain, "overrun_tokens"),
        _sum(chain, "wasted_tokens"),
    )


def _gaps_of(chain: list[Attempt]) -> list[int]:
    """Return the gaps between tokens of an answer that several attempts generated in turn, with the waits between
    them.
    """
    gaps: list[int] = []
    left_at: int | None = None
    for attempt in chain:
        if left_at is not None and attempt.first_at_ns is not None:
            gaps.append(gap_units(attempt.first_at_ns - left_at))
        gaps += attempt.gaps_for(attempt.usage.output_tokens)
        left_at = attempt.last_at_ns if attempt.last_at_ns is not None else left_at
    return gaps


def _gap_clock(chain: list[Attempt]) -> GapClock:
    timed = [attempt for attempt in chain if attempt.gaps]
    return timed[0].result.gap_clock if timed else "none"


def _sum(chain: list[Attempt], count: CountName) -> int | None:
    known = [found for attempt in chain if (found := getattr(attempt.result, count)) is not None]
    return sum(known) if known else None
