"""Arrivals of a load test: a Poisson process, drawn the same way every time."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Final

from tollkeeper.replay.trace import Trace, TraceRequest

_SEED: Final = 5


def poisson(rate: float, seconds: float, lengths: Sequence[TraceRequest], block_tokens: int) -> Trace:
    """Let requests of these lengths, in turn, arrive for `seconds` at `rate` per second.

    Arrivals are a Poisson process on the condition that the rate comes out exactly: then the moments are independent
    and uniform. Small steps so do not differ from their rate by chance. The seed is fixed: two load tests send the
    same.
    """
    source = random.Random(_SEED)
    moments = sorted(source.uniform(0.0, seconds) for _ in range(max(1, round(rate * seconds))))
    requests = tuple(replace(length, at_seconds=at) for at, length in zip(moments, cycle(lengths), strict=False))
    return Trace("poisson", "poisson", requests, block_tokens)
