"""Splits a request's time into stages: admission, queues, prefill, every token, and its end."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from analytics.explorer.single_request import SingleRequest

Stage = Literal["admission", "gateway_queue", "engine_queue", "cold_start", "first_token", "answer", "tokens", "finish"]


@dataclass(frozen=True, slots=True)
class Span:
    """A stage of a request, in nanoseconds from its arrival at the gateway."""

    stage: Stage
    begin_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Return its duration in nanoseconds."""
        return self.end_ns - self.begin_ns


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Consecutive stages that sum to the whole, and the time of every token (ns from the arrival)."""

    spans: tuple[Span, ...]
    token_ns: tuple[int, ...]
    duration_ns: int


def waterfall(request: SingleRequest) -> Waterfall:
    """Return a request's stages. Unmeasured time is part of the enclosing stage, never a stage of its own.

    Admission ends when the request may be sent; its last part may be the gateway's queue. Next come the engine's queue
    and model wake-up, as the engine reports them; the rest until the first token is prefill, which includes network
    time and failed attempts. If tokens were not timed, all of that is one stage, `answer`.
    """
    duration = request.duration_ns
    work: Stage = "answer" if request.ttft_ns is None else "first_token"
    first = duration if request.ttft_ns is None else min(request.ttft_ns, duration)
    tokens = () if request.ttft_ns is None else tuple(accumulate(request.gaps_ns, initial=request.ttft_ns))
    if request.admission_ns is None:
        # Refused before admission, or by a path that records no admission time.
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
