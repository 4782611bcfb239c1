"""The spans of every request when tracing is on, built from its record after its end. Nothing runs on the request path.

The request's span has the GenAI attributes, and the caller's span as its parent. Below it are the request's waits and
every attempt at a target, below the last attempt the engine's phases. Only the request's span has usage and cost: sums
over spans count each request once.
"""

from collections.abc import Mapping
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from contracts.recording.names import (
    ATTEMPT_NUMBER,
    ATTEMPT_REASON,
    ATTEMPTS_OMITTED,
    ERROR_TYPE,
    GPU_TIME_NS,
    PROVIDER_NAME,
    REQUEST_ID,
    REQUEST_MODEL,
    TARGET,
    TENANT,
    span_attributes,
    span_name,
)
from contracts.recording.records import RequestRecord
from gateway.records.span_exporter import SpanExporter
from gateway.records.trace_context import TraceContext, attempt_name, child_span_id
from gateway.request.attempt import Attempt
from gateway.request.request_state import RequestState

_SCOPE: Final = InstrumentationScope("tollkeeper.gateway")
_MAX_ATTEMPTS: Final = 5  # with queue, guardrails and the engine's three phases at most ten spans below a request's
_ENGINE: Final = "engine"  # the kind of target that says how long its phases took
_FIRST_TOKEN: Final = "tollkeeper.first_token"

Attributes = Mapping[str, str | int | float | bool | list[str]]


class SpanEmitter:
    """Converts finished requests to spans and passes them to an exporter."""

    def __init__(self, exporter: SpanExporter, gateway: str) -> None:
        self._resource = Resource.create({"service.name": "tollkeeper-gateway", "service.instance.id": gateway})
        self._exporter = exporter
        self.run = exporter.run
        self.close = exporter.close

    @property
    def pending_spans(self) -> int:
        """Return the number of spans that the collector has not acknowledged."""
        return self._exporter.pending_spans

    @property
    def dropped_spans(self) -> int:
        """Return the number of spans dropped since the start."""
        return self._exporter.dropped_spans

    def emit(self, record: RequestRecord, trace: TraceContext, life: RequestState | None) -> None:
        """Pass a request's spans to the exporter. A caller without a trace gets one named by the request.

        `trace` is the caller's. `life` is the request where it is at hand: a planned chat, which asked one
        target once, has its record alone.
        """
        self._exporter.add(_Spans(record, trace, life, self._resource).made())


class _Spans:
    """The spans of one request."""

    def __init__(
        self, record: RequestRecord, trace: TraceContext, life: RequestState | None, resource: Resource
    ) -> None:
        self._record = record
        self._life = life
        self._resource = resource
        self._trace_id = int.from_bytes(record.trace_id or record.request_id, "big")
        self._root_id = record.span_id or record.request_id[8:]
        self._parent_id = trace.span_id
        self._state = TraceState.from_header([trace.state]) if trace.state else None
        self._made: list[ReadableSpan] = []

    def made(self) -> list[ReadableSpan]:
        """Return all spans; the request's span is the first."""
        record, life = self._record, self._life
        more: dict[str, str | int | float | bool | list[str]] = dict(span_attributes(record))
        omitted = 0 if life is None else len(life.attempts) - _MAX_ATTEMPTS
        if omitted > 0:
            more[ATTEMPTS_OMITTED] = omitted
        self._add(
            span_name(record),
            self._root_id,
            self._parent_id,
            record.started_at_ns,
            record.duration_ns,
            more,
            kind=SpanKind.CLIENT,
            has_failed=record.outcome == "error",
            first_token_ns=record.ttft_ns,
            is_parent_remote=True,
        )
        if life is None:
            self._add_only_attempt()
        else:
            self._add_waits(life)
            for attempt in life.attempts[-_MAX_ATTEMPTS:]:
                self._add_attempt(attempt)
            if life.last_attempt is not None and life.last_attempt.target.kind == _ENGINE:
                self._add_engine_phases(life.last_attempt)
        return self._made

    def _add_waits(self, life: RequestState) -> None:
        guard = life.guard
        if guard is not None and guard.spent_ns is not None:
            began = self._unix_ns(life, guard.began_ns)
            self._add_child("gateway.guardrails", began, guard.spent_ns, {})
        if life.queued_ns is not None and life.wait_ns is not None:
            self._add_child("gateway.queue", self._unix_ns(life, life.queued_ns), life.wait_ns, {})

    def _add_only_attempt(self) -> None:
        """Add the span of a single attempt, of which only the request's record exists."""
        record = self._record
        if not record.replica or record.attempts != 1:
            return
        waited = min(record.admission_ns or 0, record.duration_ns)
        first_ns = None if record.ttft_ns is None else max(record.ttft_ns - waited, 0)
        about = self._about_attempt(1, "first", record.replica, record.provider, record.model, record.error_code)
        self._add(
            "gateway.attempt",
            child_span_id(self._root_id, attempt_name(1)),
            self._root_id,
            record.started_at_ns + waited,
            record.duration_ns - waited,
            about,
            kind=SpanKind.CLIENT,
            has_failed=record.outcome == "error",
            first_token_ns=first_ns,
        )

    def _add_attempt(self, attempt: Attempt) -> None:
        target, error, first_at_ns = attempt.target, attempt.error, attempt.first_at_ns
        model = self._record.model if attempt.model is None else attempt.model.id
        code = "" if error is None else error.error_code
        provider = target.provider or target.kind
        self._add(
            "gateway.attempt",
            child_span_id(self._root_id, attempt_name(attempt.number)),
            self._root_id,
            attempt.started_at_ns,
            attempt.ended_ns - attempt.began_ns,
            self._about_attempt(attempt.number, attempt.reason, target.id, provider, model, code),
            kind=SpanKind.CLIENT,
            has_failed=error is not None,
            first_token_ns=None if first_at_ns is None else first_at_ns - attempt.began_ns,
        )

    def _about_attempt(self, number: int, reason: str, target: str, provider: str, model: str, code: str) -> Attributes:
        found = {PROVIDER_NAME: provider, REQUEST_MODEL: model, TARGET: target, ATTEMPT_REASON: reason}
        return {**found, ATTEMPT_NUMBER: number, **({ERROR_TYPE: code} if code else {})}

    def _add_engine_phases(self, attempt: Attempt) -> None:
        """Add the engine's phases: queueing, prefill and decoding."""
        result, began = attempt.result, attempt.started_at_ns
        parent = child_span_id(self._root_id, attempt_name(attempt.number))
        queue_ns = result.queue_ns or 0
        if queue_ns:
            self._add_child("engine.queue", began, queue_ns, {}, parent)
        if attempt.first_at_ns is None:
            return
        first_ns = attempt.first_at_ns - attempt.began_ns
        gpu = result.gpu
        about: Attributes = {} if gpu is None else {GPU_TIME_NS: gpu.prefill_ns}
        self._add_child("engine.prefill", began + min(queue_ns, first_ns), first_ns - queue_ns, about, parent)
        last_ns = (attempt.last_at_ns or attempt.first_at_ns) - attempt.began_ns
        about = {} if gpu is None else {GPU_TIME_NS: gpu.decode_ns}
        self._add_child("engine.decode", began + first_ns, last_ns - first_ns, about, parent)

    def _unix_ns(self, life: RequestState, monotonic_ns: int) -> int:
        return life.started_at_ns + monotonic_ns - life.began_ns

    def _add_child(
        self, name: str, began_ns: int, duration_ns: int, about: Attributes, parent: bytes | None = None
    ) -> None:
        parent = parent or self._root_id
        self._add(name, child_span_id(parent, name), parent, began_ns, duration_ns, about)

    def _add(
        self,
        name: str,
        span_id: bytes,
        parent_id: bytes | None,
        began_ns: int,  # Unix
        duration_ns: int,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        has_failed: bool = False,
        first_token_ns: int | None = None,  # after its begin
        is_parent_remote: bool = False,
    ) -> None:
        whose = {REQUEST_ID: self._record.request_id.hex()}
        if self._record.who.tenant:
            whose[TENANT] = self._record.who.tenant
        events = () if first_token_ns is None else (Event(_FIRST_TOKEN, timestamp=began_ns + first_token_ns),)
        self._made.append(
            ReadableSpan(
                name=name,
                context=self._context(span_id),
                parent=self._context(parent_id, is_remote=is_parent_remote) if parent_id else None,
                resource=self._resource,
                attributes={**whose, **attributes},
                events=events,
                kind=kind,
                status=Status(StatusCode.ERROR if has_failed else StatusCode.UNSET),
                start_time=began_ns,
                end_time=began_ns + max(duration_ns, 0),
                instrumentation_scope=_SCOPE,
            )
        )

    def _context(self, span_id: bytes, *, is_remote: bool = False) -> SpanContext:
        return SpanContext(
            trace_id=self._trace_id,
            span_id=int.from_bytes(span_id, "big"),
            is_remote=is_remote,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
            trace_state=self._state,
        )
