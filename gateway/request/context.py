"""Request context from headers: trace, run, conversation, tags, priority."""

from collections.abc import Mapping
from typing import Final

from contracts.errors import TollkeeperError
from contracts.recording.ids import UUID_RANDOM_TAIL
from contracts.rules.limits import PriorityClass
from gateway.apis.agent_labels import HEADERS as AGENT_HEADERS
from gateway.apis.agent_labels import read_labels, with_labels
from gateway.apis.reading import read_latency_budget, read_priority, read_tags
from gateway.records.trace_context import UNTRACED, TraceContext, attempt_name, child_span_id

_MAX_ID_LENGTH: Final = 100
_RUN_ID: Final = b"x-tollkeeper-run-id"
_CONVERSATION_ID: Final = b"x-tollkeeper-conversation-id"
_TAGS: Final = b"x-tollkeeper-tags"
_PRIORITY: Final = b"x-tollkeeper-priority"
_LATENCY_BUDGET: Final = b"x-tollkeeper-latency-budget-ms"
_TRACEPARENT: Final = b"traceparent"
# Most requests have none of these, which is seen at one look.
_OWN_HEADERS: Final = frozenset((_RUN_ID, _CONVERSATION_ID, _TAGS, _PRIORITY, _LATENCY_BUDGET)) | AGENT_HEADERS
_HEADERS: Final = _OWN_HEADERS | {_TRACEPARENT}


class RequestContext:
    """What the headers of one request state besides its key. Requests without such headers share NO_CONTEXT."""

    __slots__ = ("trace", "run_id", "conversation_id", "tags", "_priority", "latency_budget_ms", "fault")

    def __init__(
        self,
        trace: TraceContext = UNTRACED,
        run_id: str = "",
        conversation_id: str = "",
        tags: dict[str, str] | None = None,
        priority: str = "",
        latency_budget_ms: int | None = None,
        fault: TollkeeperError | None = None,
    ) -> None:
        self.trace = trace
        self.run_id = run_id
        self.conversation_id = conversation_id
        self.tags = tags or {}
        self._priority = priority
        self.latency_budget_ms = latency_budget_ms  # for the whole answer
        self.fault = fault  # what is wrong with the tags or the latency budget

    def traced(self, trace: TraceContext) -> "RequestContext":
        """Return this context with another trace."""
        return RequestContext(
            trace,
            self.run_id,
            self.conversation_id,
            self.tags,
            self._priority,
            self.latency_budget_ms,
            self.fault,
        )

    def priority(self, best: PriorityClass) -> PriorityClass:
        """Return the class of the request, whose key may have `best`. Raise InvalidRequest if it is not a class."""
        return read_priority(self._priority, best) if self._priority else best

    def span_id(self, request_id: bytes) -> bytes:
        """Return the id of the request's own span; empty if the caller traces nothing."""
        return request_id[-UUID_RANDOM_TAIL:] if self.trace.trace_id else b""

    def trace_lines(self, request_id: bytes, *, has_spans: bool) -> str:
        """Return the trace headers that the first target gets. With `has_spans` the gateway's own span is their
        parent.
        """
        trace = self.trace
        if not trace.trace_id:
            return ""
        header = trace_parent(trace, self.span_id(request_id), 1 if has_spans else 0)
        state = f"tracestate: {trace.state}\r\n" if trace.state else ""
        return f"traceparent: {header}\r\n{state}"


NO_CONTEXT: Final = RequestContext()


def has_context(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request has headers that a context is read from, besides its key."""
    return not _HEADERS.isdisjoint(headers)


def read_trace(headers: Mapping[bytes, bytes]) -> TraceContext:
    """Return the caller's trace from `traceparent` and `tracestate`. Malformed headers are ignored, as W3C Trace
    Context asks.
    """
    header = headers.get(_TRACEPARENT)
    if not header:
        return UNTRACED
    return TraceContext.parse(header.decode("latin-1"), headers.get(b"tracestate", b"").decode("latin-1"))


def read_context(headers: Mapping[bytes, bytes], trace: TraceContext) -> RequestContext:
    """Return the context from a request's headers, and an error if one of them is malformed."""
    if _OWN_HEADERS.isdisjoint(headers):
        return RequestContext(trace) if trace.trace_id else NO_CONTEXT
    tags: dict[str, str] = {}
    latency_budget_ms: int | None = None
    fault: TollkeeperError | None = None
    try:
        tags = read_tags(_text(headers, _TAGS))
        latency_budget_ms = read_latency_budget(_text(headers, _LATENCY_BUDGET))
    except TollkeeperError as error:
        fault = error
    session, labels = read_labels(headers)
    return RequestContext(
        trace,
        _text(headers, _RUN_ID)[:_MAX_ID_LENGTH],
        (_text(headers, _CONVERSATION_ID) or session)[:_MAX_ID_LENGTH],
        with_labels(tags, labels),
        _text(headers, _PRIORITY),
        latency_budget_ms,
        fault,
    )


def trace_parent(trace: TraceContext, span_id: bytes, attempt: int) -> str:
    """Return the `traceparent` of an attempt: the target's spans belong to the attempt's; 0: to the request's."""
    if not attempt:
        return TraceContext(trace.trace_id, span_id, "", trace.is_sampled).header()
    return TraceContext(trace.trace_id, child_span_id(span_id, attempt_name(attempt))).header()


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    value = headers.get(name)
    return value.decode("latin-1") if value else ""
