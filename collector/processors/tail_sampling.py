"""Tail sampling: decides which traces to store when they are complete.

Traces with an error, slow and expensive traces are stored, and a random share of the rest. Gateways' packed records
are not spans and are not sampled. Undecided spans are in memory and are lost if the process is killed.
"""

import hashlib
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collector.arrival import Arrival
from collector.counters import Counters
from collector.processors.attributes import drop_attribute
from contracts.errors import LimitExceeded, TollkeeperError, Unavailable
from contracts.recording.dialects import COST_AMOUNT, reading_of
from contracts.recording.names import BATCH_ID, SAMPLED_SHARE

_log = logging.getLogger(__name__)

SAMPLED_OUT: Final = "sampled_out"
_RANDOM_BITS: Final = 56  # random bits of a trace id (W3C Trace Context, level 2)
_RANDOM_BYTES: Final = _RANDOM_BITS // 8
_REMEMBERED: Final = 100_000
_REMEMBERED_REQUESTS: Final = 10_000
_LOOK_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 5.0
_SPAN_OVERHEAD_BYTES: Final = 250  # bytes of the Python objects around a span's bytes
_SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SamplingPolicy:
    """Which traces to store. `share`: part of the traces without errors, slow spans or high cost; 1: all."""

    share: float
    slow_seconds: float
    expensive_usd: float
    wait_seconds: float
    max_bytes: int

    def is_drawn(self, trace_id: bytes) -> bool:
        """Return whether a trace is in the random share; it depends only on the id, so all collectors agree."""
        drawn = int.from_bytes(trace_id[-_RANDOM_BYTES:])
        return drawn >= (1 - self.share) * (1 << _RANDOM_BITS)

    def is_worth_keeping(self, span: Span) -> bool:
        """Return whether a span requires its trace to be stored: an error, slow, or expensive."""
        if span.status.code == Status.StatusCode.STATUS_CODE_ERROR:
            return True
        if span.end_time_unix_nano - span.start_time_unix_nano >= self.slow_seconds * _SECOND_NS:
            return True
        return any(
            reading_of(attribute.key).name == COST_AMOUNT and _amount(attribute.value) >= self.expensive_usd
            for attribute in span.attributes
        )


_Shell = tuple[bytes, str, bytes, str]  # resource and scope as bytes, each with its schema URL


@dataclass(slots=True)
class _Trace:
    """The held spans of an undecided trace."""

    decide_at: float
    spans: dict[bytes, _Shell] = field(default_factory=dict)  # by their bytes, which removes duplicates
    size: int = 0
    is_worth_keeping: bool = False


class TailSampler:
    """Holds spans for `wait_seconds` after a trace's first span, then passes on those of the traces to store.

    Spans that arrive after the decision follow it, unless they require storing themselves. A thread started by `start`
    decides; `stop` decides all remaining traces.
    """

    def __init__(
        self,
        policy: SamplingPolicy,
        keep: Callable[[ExportTraceServiceRequest], None],
        counters: Counters,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._keep = keep
        self._counters = counters
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._waiting: OrderedDict[bytes, _Trace] = OrderedDict()  # in order of decision
        self._held_bytes = 0
        self._is_stuck = False  # the spool refused the last decided spans
        # Recent requests by digest: a byte per span, 1 if it was passed on immediately; empty if none was.
        self._requests: OrderedDict[bytes, bytes] = OrderedDict()
        self._decided: OrderedDict[bytes, bool] = OrderedDict()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Start the deciding thread."""
        self._thread.start()

    def stop(self) -> None:
        """Decide all traces and stop the thread."""
        self._stopping.set()
        self._thread.join()
        self.decide(math.inf)

    def admit(self, arrival: Arrival) -> None:
        """Take the spans of a traces request; other signals pass unchanged. A repeated request is only acknowledged.

        Raises LimitExceeded (429, code sampling_full) if held spans cannot be passed on; nothing was taken then.
        """
        if arrival.processor.signal != "traces" or self._policy.share >= 1:
            return
        digest = hashlib.blake2b(arrival.message.SerializeToString(), digest_size=16).digest()
        with self._lock:
            if self._is_stuck and self._held_bytes > self._policy.max_bytes:
                raise LimitExceeded(
                    "the collector holds as many spans for sampling as TOLLKEEPER_COLLECTOR_SAMPLE_MAX_BYTES "
                    "allows, and its spool is full; send this batch again",
                    code="sampling_full",
                    retry_after_seconds=_RETRY_SECONDS,
                )
            went_on = self._requests.get(digest)
            if went_on is None:
                spans = list(_spans(arrival.message))
                passed = bytes([not self._hold(*one) for one in spans])
                late = list(compress(spans, passed))
                self._requests[digest] = passed if late else b""
                if len(self._requests) > _REMEMBERED_REQUESTS:
                    self._requests.popitem(last=False)
            else:  # passed on again: the spool may have refused these, and removes duplicates
                late = list(compress(_spans(arrival.message), went_on))
        if went_on is not None:
            self._counters.noticed("duplicate_batches")
        arrival.message, arrival.body = _request(late), None

    def decide(self, now: float | None = None) -> None:
        """Decide the traces that are due and pass on those to store; if the spool refuses them, hold them longer."""
        moment = self._monotonic() if now is None else now
        decided: dict[bytes, _Trace] = {}
        kept: list[tuple[_Shell, bytes]] = []
        with self._lock:
            while self._waiting:
                trace_id, trace = next(iter(self._waiting.items()))
                if trace.decide_at > moment and self._held_bytes <= self._policy.max_bytes:
                    break
                del self._waiting[trace_id]
                self._held_bytes -= trace.size
                if found := self._decided_spans(trace_id, trace):
                    decided[trace_id] = trace
                    kept += found
        if not kept:
            return
        try:
            self._keep(_request(kept))
            self._is_stuck = False
        except (LimitExceeded, Unavailable) as error:
            if math.isinf(moment):  # stopping: no later attempt
                self._lose(len(kept), error)
            else:
                self._hold_on(decided)
        except TollkeeperError as error:
            self._lose(len(kept), error)

    def _lose(self, spans: int, error: TollkeeperError) -> None:
        self._counters.rejected(error.error_code, spans)
        _log.warning("sampled spans lost spans=%d reason=%s", spans, error.message)

    def _hold_on(self, decided: dict[bytes, _Trace]) -> None:
        """Put back traces that the spool refused: they were acknowledged, and will be decided again in the same way."""
        with self._lock:
            self._is_stuck = True
            for trace_id, trace in reversed(decided.items()):
                later = self._waiting.pop(trace_id, None)  # spans of the trace that arrived meanwhile
                if later is not None:
                    trace.spans = {**later.spans, **trace.spans}
                    trace.size += later.size
                    trace.is_worth_keeping |= later.is_worth_keeping
                    self._held_bytes -= later.size
                self._waiting[trace_id] = trace
                self._waiting.move_to_end(trace_id, last=False)
                self._held_bytes += trace.size
                self._decided.pop(trace_id, None)

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            self.decide()

    def _hold(self, shell: _Shell, span: Span) -> bool:
        """Hold a span; return False if it must be passed on immediately."""
        verdict = self._decided.get(span.trace_id)
        if verdict is not None:
            if verdict or self._policy.is_worth_keeping(span):
                return False
            self._counters.rejected(SAMPLED_OUT)
            return True
        trace = self._waiting.get(span.trace_id)
        if trace is None:
            trace = self._waiting[span.trace_id] = _Trace(self._monotonic() + self._policy.wait_seconds)
        packed = span.SerializeToString()
        if packed in trace.spans:
            return True
        trace.spans[packed] = shell
        size = len(packed) + _SPAN_OVERHEAD_BYTES
        trace.size += size
        self._held_bytes += size
        trace.is_worth_keeping = trace.is_worth_keeping or self._policy.is_worth_keeping(span)
        return True

    def _decided_spans(self, trace_id: bytes, trace: _Trace) -> list[tuple[_Shell, bytes]]:
        verdict = trace.is_worth_keeping or self._policy.is_drawn(trace_id)
        self._decided[trace_id] = verdict
        if len(self._decided) > _REMEMBERED:
            self._decided.popitem(last=False)
        if not verdict:
            self._counters.rejected(SAMPLED_OUT, len(trace.spans))
            return []
        if trace.is_worth_keeping:
            return [(shell, packed) for packed, shell in trace.spans.items()]
        return [(shell, packed + _share_attribute(self._policy.share)) for packed, shell in trace.spans.items()]


def _amount(value: AnyValue) -> float:
    return float(value.int_value) if value.HasField("int_value") else value.double_value


def _share_attribute(share: float) -> bytes:
    """Return the sampling-ratio attribute of a sampled span, serialised; appending it to a span's bytes adds it."""
    span = Span()
    span.attributes.add(key=SAMPLED_SHARE).value.double_value = share
    return span.SerializeToString()


def _spans(message: Any) -> Iterator[tuple[_Shell, Span]]:
    for part in message.resource_spans:
        resource = part.resource.SerializeToString()  # bytes: a message would keep its request in memory
        for scope in part.scope_spans:
            shell = (resource, part.schema_url, scope.scope.SerializeToString(), scope.schema_url)
            for span in scope.spans:
                yield shell, span


def _request(spans: list[tuple[_Shell, Any]]) -> ExportTraceServiceRequest:
    """Build a request from spans, grouped by their original resource and scope."""
    request = ExportTraceServiceRequest()
    scopes: dict[_Shell, Any] = {}
    for shell, span in spans:
        found = scopes.get(shell)
        if found is None:
            resource, resource_url, scope, scope_url = shell
            part = request.resource_spans.add(resource=Resource.FromString(resource), schema_url=resource_url)
            # Without the sender's batch id: its spans are decided at several times, and the second would count as a
            # duplicate.
            drop_attribute(part.resource, BATCH_ID)
            found = scopes[shell] = part.scope_spans.add(
                scope=InstrumentationScope.FromString(scope), schema_url=scope_url
            )
        found.spans.append(Span.FromString(span) if isinstance(span, bytes) else span)
    return request
