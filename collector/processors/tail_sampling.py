"""Tail sampling: which traces are kept is decided when they are whole, by what happened in them.

Kept are traces with an error, slow ones, expensive ones, and a random share of the rest. Packed records are not
spans and never come here. A span waits in memory: what has not been decided when the process is killed is lost.
"""

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collector.arrival import Arrival
from collector.counters import Counters
from collector.processors.attributes import drop_attribute
from contracts.dialects import COST_AMOUNT, reading_of
from contracts.errors import TollkeeperError
from contracts.names import BATCH_ID, SAMPLED_SHARE

_log = logging.getLogger(__name__)

SAMPLED_OUT: Final = "sampled_out"
_RANDOM_BITS: Final = 56  # of a trace id that are random (W3C Trace Context, level 2)
_RANDOM_BYTES: Final = _RANDOM_BITS // 8
_REMEMBERED: Final = 100_000
_LOOK_SECONDS: Final = 0.5
_SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SamplingPolicy:
    """Which traces to keep. `share` of those that are neither faulty nor slow nor expensive; 1 keeps all."""

    share: float
    slow_seconds: float
    expensive_usd: float
    wait_seconds: float
    max_bytes: int

    def is_drawn(self, trace_id: bytes) -> bool:
        """Draw by the trace's id, so that every collector draws alike."""
        drawn = int.from_bytes(trace_id[-_RANDOM_BYTES:])
        return drawn >= (1 - self.share) * (1 << _RANDOM_BITS)

    def is_worth_keeping(self, span: Span) -> bool:
        """Tell whether one span alone is a reason to keep its trace."""
        if span.status.code == Status.StatusCode.STATUS_CODE_ERROR:
            return True
        if span.end_time_unix_nano - span.start_time_unix_nano >= self.slow_seconds * _SECOND_NS:
            return True
        return any(
            reading_of(attribute.key).name == COST_AMOUNT and _amount(attribute.value) >= self.expensive_usd
            for attribute in span.attributes
        )


_Shell = tuple[Resource, str, InstrumentationScope, str]  # resource and scope, each with its schema's URL


@dataclass(slots=True)
class _Trace:
    """What is known of a trace that is not decided."""

    decide_at: float
    spans: list[tuple[_Shell, bytes]] = field(default_factory=list)
    size: int = 0
    is_worth_keeping: bool = False


class TailSampler:
    """Takes spans out of requests, holds them for `wait_seconds`, and hands on those of the traces it keeps.

    Spans that come after the decision follow it; one that is itself a reason to keep is kept. `start` and `stop`
    bound a thread that decides; at `stop` everything is decided.
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
        self._waiting: OrderedDict[bytes, _Trace] = OrderedDict()  # in the order they are to be decided
        self._held_bytes = 0
        self._decided: OrderedDict[bytes, bool] = OrderedDict()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Begin to decide."""
        self._thread.start()

    def stop(self) -> None:
        """Decide everything, and end."""
        self._stopping.set()
        self._thread.join()
        self.decide(math.inf)

    def admit(self, arrival: Arrival) -> None:
        """Take the spans of a request of /v1/traces; other signals pass."""
        if arrival.processor.signal != "traces" or self._policy.share >= 1:
            return
        with self._lock:
            late = [one for one in _spans(arrival.message) if not self._hold(*one)]
        arrival.message, arrival.body = _request(late), None

    def decide(self, now: float | None = None) -> None:
        """Decide the traces whose time has come, and hand on the kept ones."""
        moment = self._monotonic() if now is None else now
        kept: list[tuple[_Shell, bytes]] = []
        with self._lock:
            while self._waiting:
                trace_id, trace = next(iter(self._waiting.items()))
                if trace.decide_at > moment and self._held_bytes <= self._policy.max_bytes:
                    break
                del self._waiting[trace_id]
                self._held_bytes -= trace.size
                kept += self._decided_spans(trace_id, trace)
        if not kept:
            return
        try:
            self._keep(_request(kept))
        except TollkeeperError as error:
            self._counters.rejected(error.error_code, len(kept))
            _log.warning("sampled spans lost spans=%d reason=%s", len(kept), error.message)

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            self.decide()

    def _hold(self, shell: _Shell, span: Span) -> bool:
        """Hold a span; False where it is to go on at once."""
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
        trace.spans.append((shell, packed))
        trace.size += len(packed)
        self._held_bytes += len(packed)
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
            return trace.spans
        return [(shell, packed + _share_attribute(self._policy.share)) for shell, packed in trace.spans]


def _amount(value: AnyValue) -> float:
    return float(value.int_value) if value.HasField("int_value") else value.double_value


def _share_attribute(share: float) -> bytes:
    """Write the attribute that says for how many others a drawn span stands; messages merge by concatenation."""
    span = Span()
    span.attributes.add(key=SAMPLED_SHARE).value.double_value = share
    return span.SerializeToString()


def _spans(message: Any) -> list[tuple[_Shell, Span]]:
    return [
        ((part.resource, part.schema_url, scope.scope, scope.schema_url), span)
        for part in message.resource_spans
        for scope in part.scope_spans
        for span in scope.spans
    ]


def _request(spans: list[tuple[_Shell, Any]]) -> ExportTraceServiceRequest:
    """Put spans together again: those that came in one scope of one resource stand in one."""
    request = ExportTraceServiceRequest()
    scopes: dict[tuple[bytes, str, bytes, str], Any] = {}
    for (resource, resource_url, scope, scope_url), span in spans:
        key = (resource.SerializeToString(), resource_url, scope.SerializeToString(), scope_url)
        found = scopes.get(key)
        if found is None:
            part = request.resource_spans.add(resource=resource, schema_url=resource_url)
            # A sender's spans are decided at several times: under its batch id the second would be a repetition.
            drop_attribute(part.resource, BATCH_ID)
            found = scopes[key] = part.scope_spans.add(scope=scope, schema_url=scope_url)
        found.spans.append(Span.FromString(span) if isinstance(span, bytes) else span)
    return request
