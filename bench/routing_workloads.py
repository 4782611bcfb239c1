"""Workloads for the routing benchmark: Mooncake's trace, and what is made of it to try a router harder."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from algorithms.routing.block_map import KEY_MASK
from bench.replica_simulator import Request

TRACE: Final = Path(__file__).parent / "traces" / "mooncake" / "synthetic_trace.jsonl"
BLOCK_TOKENS: Final = 512
_NANO: Final = 1_000_000_000
_SHARED_KEY: Final = 1 << 59  # of made blocks: no trace has so many of its own


class _Line(msgspec.Struct):
    timestamp: float  # ms
    input_length: int
    output_length: int
    hash_ids: list[int]


_decoder: Final = msgspec.json.Decoder(_Line)


def mooncake(path: Path = TRACE) -> list[Request]:
    """Read a trace in Mooncake's format, in order of arrival. Raises OSError or msgspec.MsgspecError."""
    lines = [_decoder.decode(line) for line in path.read_bytes().splitlines() if line.strip()]
    lines.sort(key=lambda line: line.timestamp)
    first = lines[0].timestamp if lines else 0.0
    return [
        Request(
            round((line.timestamp - first) * 1_000_000),
            line.input_length,
            line.output_length,
            tuple([one & KEY_MASK for one in line.hash_ids]),
        )
        for line in lines
    ]


def sharing(requests: Sequence[Request], blocks: int) -> list[Request]:
    """Let every prompt begin with the same blocks, as with one long system prompt for all."""
    head = tuple(range(_SHARED_KEY, _SHARED_KEY + blocks))
    return [
        Request(
            one.at_ns,
            one.tokens + blocks * BLOCK_TOKENS,
            one.output_tokens,
            tuple([(key ^ _SHARED_KEY << 1) & KEY_MASK for key in head]) + one.blocks,
        )
        for one in requests
    ]


def one_prefix(blocks: int, own_blocks: int, per_second: float, count: int, seed: int = 0) -> list[Request]:
    """Return requests that share almost all of their prompt, at random times."""
    source = random.Random(seed)
    head = tuple(range(_SHARED_KEY, _SHARED_KEY + blocks))
    requests, at, key = [], 0.0, 0
    for _ in range(count):
        at += source.expovariate(per_second)
        own = source.randint(1, 2 * own_blocks - 1)
        keys = head + tuple(range(key, key + own))
        requests.append(Request(round(at * _NANO), len(keys) * BLOCK_TOKENS, 100, keys))
        key += own
    return requests


def burst(requests: Sequence[Request], from_second: float, seconds: float, times: float) -> list[Request]:
    """Let arrivals come the given number of times as fast for some seconds; all that comes later comes that much
    earlier.
    """
    start, length = from_second * _NANO, seconds * _NANO
    shifted = []
    for one in requests:
        at = one.at_ns
        if at >= start + length * times:
            at = round(at - length * (times - 1))
        elif at > start:
            at = round(start + (at - start) / times)
        shifted.append(Request(at, one.tokens, one.output_tokens, one.blocks, one.session))
    return shifted
