"""A request's time laid out: from its arrival through admission, queues and prefill to every token and its end."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from analytics.explorer.single_request import SingleRequest

Stage = Literal["admission", "gateway_queue", "engine_queue", "cold_start", "first_token", "answer", "tokens", "finish"]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a request's time, in nanoseconds from its arrival at the gateway."""

    stage: Stage
    begin_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Return how long it took."""
        return self.end_ns - self.begin_ns


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Spans that lie end to end and sum to the whole, and the moment of every token (ns from the arrival)."""

    spans: tuple[Span, ...]
    token_ns: tuple[int, ...]
    duration_ns: int


def waterfall(request: SingleRequest) -> Waterfall:
    """Lay a request's time out. What was not measured is part of the span that holds it, never a span of its own.

    Admission ends when the request may be sent on; its end may have been spent in the gateway's queue. The wait in the
    engine's queue and for a model to wake come next, by the engine's word; what is left until the first token is
    prefill, and the way there and back. An attempt that failed before lies in there too. Of an answer whose tokens were
    not timed all of that is one span, `answer`.
    """
    duration = request.duration_ns
    work: Stage = "answer" if request.ttft_ns is None else "first_token"
    first = duration if request.ttft_ns is None else min(request.ttft_ns, duration)
    tokens = () if request.ttft_ns is None else tuple(accumulate(request.gaps_ns, initial=request.ttft_ns))
    if request.admission_ns is None:
        # Refused before it was let in, or by a way that does not tell.
        stages: list[tuple[Stage, int]] = [(work, first)]
    else:
        admitted = min(request.admission_ns, first)
        waited = min(request.wait_ns or 0, admitted)
        left = first - admitted
        queued = min(request.queue_ns or 0, left)
        cold = min(request.cold_start_ns or 0, left - queued)
        stages = [
            ("admission", admitted - waited),
            ("gateway_queue", waited),
            ("cold_start", cold),
            ("engine_queue", queued),
            (work, left - queued - cold),
        ]
    last = min(tokens[-1], duration) if tokens else first
    stages += [("tokens", last - first), ("finish", duration - last)]
    return Waterfall(_end_to_end(stages), tokens, duration)


def _end_to_end(stages: Sequence[tuple[Stage, int]]) -> tuple[Span, ...]:
    spans, at = [], 0
    for stage, length in stages:
        if length > 0:
            spans.append(Span(stage, at, at + length))
            at += length
    return tuple(spans)
