"""Arrival times of a load test: a Poisson process with a fixed seed."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Final

from tollkeeper.replay.trace import Trace, TraceRequest

_SEED: Final = 5


def poisson(rate: float, seconds: float, lengths: Sequence[TraceRequest], block_tokens: int) -> Trace:
    """Return a trace of requests with these lengths (cyclic) that arrive for `seconds` at `rate` per second.

    Arrivals are a Poisson process conditioned on the exact number of requests, so times are independent and uniform,
    and a short step has exactly its rate. The seed is fixed, so two load tests send the same requests.
    """
    source = random.Random(_SEED)
    moments = sorted(source.uniform(0.0, seconds) for _ in range(max(1, round(rate * seconds))))
    requests = tuple(replace(length, at_seconds=at) for at, length in zip(moments, cycle(lengths), strict=False))
    return Trace("poisson", "poisson", requests, block_tokens)
