"""Tail sampling: which traces are kept is decided when they are whole, by what happened in them.

Kept are traces with an error, slow ones, expensive ones, and a random share of the rest. Packed records are not
spans and never come here. A span waits in memory: what has not been decided when the process is killed is lost.
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
_RANDOM_BITS: Final = 56  # of a trace id that are random (W3C Trace Context, level 2)
_RANDOM_BYTES: Final = _RANDOM_BITS // 8
_REMEMBERED: Final = 100_000
_REMEMBERED_REQUESTS: Final = 10_000
_LOOK_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 5.0
_SPAN_OVERHEAD_BYTES: Final = 250  # of the objects around a span's bytes
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
        """Return whether one span alone is a reason to keep its trace."""
        if span.status.code == Status.StatusCode.STATUS_CODE_ERROR:
            return True
        if span.end_time_unix_nano - span.start_time_unix_nano >= self.slow_seconds * _SECOND_NS:
            return True
        return any(
            reading_of(attribute.key).name == COST_AMOUNT and _amount(attribute.value) >= self.expensive_usd
            for attribute in span.attributes
        )


_Shell = tuple[bytes, str, bytes, str]  # resource and scope as bytes, each with its schema's URL


@dataclass(slots=True)
class _Trace:
    """What is known of a trace that is not decided."""

    decide_at: float
    spans: dict[bytes, _Shell] = field(default_factory=dict)  # by their bytes: one that comes again is one
    size: int = 0
    is_worth_keeping: bool = False


class TailSampler:
    """Removes spans from requests, holds them for `wait_seconds`, and passes on those of the traces it keeps.

    Spans that come after the decision follow it; one that is itself a reason to keep is kept. `start` and `stop` bound
    a thread that decides; at `stop` everything is decided.
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
        self._is_stuck = False  # what was decided last could not be handed on
        # The last ones by their digests: a byte for each span, 1 where it went on at once; empty if none did.
        self._requests: OrderedDict[bytes, bytes] = OrderedDict()
        self._decided: OrderedDict[bytes, bool] = OrderedDict()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Start to decide."""
        self._thread.start()

    def stop(self) -> None:
        """Decide everything, and end."""
        self._stopping.set()
        self._thread.join()
        self.decide(math.inf)

    def admit(self, arrival: Arrival) -> None:
        """Accept the spans of a request of /v1/traces; other signals pass. A request that comes again is acknowledged.

        Raises LimitExceeded (429, code sampling_full) where what is held cannot be handed on: nothing was taken then.
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
            else:  # what went on at once goes on again: the spool may have refused it, and knows what it has
                late = list(compress(_spans(arrival.message), went_on))
        if went_on is not None:
            self._counters.noticed("duplicate_batches")
        arrival.message, arrival.body = _request(late), None

    def decide(self, now: float | None = None) -> None:
        """Decide the traces whose time has come, and hand on the kept ones; those that are not taken are held on."""
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
            if math.isinf(moment):  # the end: there is no later
                self._lose(len(kept), error)
            else:
                self._hold_on(decided)
        except TollkeeperError as error:
            self._lose(len(kept), error)

    def _lose(self, spans: int, error: TollkeeperError) -> None:
        self._counters.rejected(error.error_code, spans)
        _log.warning("sampled spans lost spans=%d reason=%s", spans, error.message)

    def _hold_on(self, decided: dict[bytes, _Trace]) -> None:
        """Withdraw traces that the spool has not taken: they are acknowledged, and decided again alike."""
        with self._lock:
            self._is_stuck = True
            for trace_id, trace in reversed(decided.items()):
                later = self._waiting.pop(trace_id, None)  # spans of it that came meanwhile
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
        """Hold a span; False if it is to go on at once."""
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
    """Write the attribute that says for how many others a drawn span stands; messages merge by concatenation."""
    span = Span()
    span.attributes.add(key=SAMPLED_SHARE).value.double_value = share
    return span.SerializeToString()


def _spans(message: Any) -> Iterator[tuple[_Shell, Span]]:
    for part in message.resource_spans:
        resource = part.resource.SerializeToString()  # a message would keep all of its request in memory
        for scope in part.scope_spans:
            shell = (resource, part.schema_url, scope.scope.SerializeToString(), scope.schema_url)
            for span in scope.spans:
                yield shell, span


def _request(spans: list[tuple[_Shell, Any]]) -> ExportTraceServiceRequest:
    """Put spans together again: those that came in one scope of one resource stand in one."""
    request = ExportTraceServiceRequest()
    scopes: dict[_Shell, Any] = {}
    for shell, span in spans:
        found = scopes.get(shell)
        if found is None:
            resource, resource_url, scope, scope_url = shell
            part = request.resource_spans.add(resource=Resource.FromString(resource), schema_url=resource_url)
            # A sender's spans are decided at several times: under its batch id the second would be a repetition.
            drop_attribute(part.resource, BATCH_ID)
            found = scopes[shell] = part.scope_spans.add(
                scope=InstrumentationScope.FromString(scope), schema_url=scope_url
            )
        found.spans.append(Span.FromString(span) if isinstance(span, bytes) else span)
    return request
