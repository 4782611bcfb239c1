"""How often a core stands still for everything that runs on it, and what that alone makes of a stream's chunks.

`python -m bench.load.stalls SECONDS` reads the clock without a pause and prints, as JSON, by how many nanoseconds it
went on where that was more than reading it takes: somebody else had the core, on this machine or on its host.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from bench.load.machine import pinned_to

_A_STALL_NS: Final = 100_000
_LONGEST_NS: Final = 10_000_000_000
_PATIENCE_SECONDS: Final = 30.0


def stalls_of(core: int, seconds: float) -> list[int]:
    """Give the stalls of a core that has nothing else to do, in nanoseconds."""
    command = [sys.executable, "-m", "bench.load.stalls", f"{seconds:g}"]
    with pinned_to(core):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + _PATIENCE_SECONDS)
    return list(json.loads(done.stdout))


def jitter_ns(stalls: Sequence[int], seconds: float, quantile: float) -> int:
    """Give the quantile of jitter that these stalls make of chunks that come at all times, and cost nothing.

    A chunk that comes within a stall waits for its end, and two gaps are wrong by that: the one before it and the one
    after. So a share 2 * sum(stall - x) / time of all gaps is wrong by more than `x`.
    """
    share = (1 - quantile) * seconds * 1e9 / 2
    low, high = 0, _LONGEST_NS
    while low < high:
        middle = (low + high) // 2
        if sum(max(stall - middle, 0) for stall in stalls) <= share:
            high = middle
        else:
            low = middle + 1
    return low


def _watch(seconds: float) -> list[int]:
    found: list[int] = []
    before = time.monotonic_ns()
    end = before + int(seconds * 1e9)
    while before < end:
        now = time.monotonic_ns()
        if now - before > _A_STALL_NS:
            found.append(now - before)
        before = now
    return found


if __name__ == "__main__":
    print(json.dumps(_watch(float(sys.argv[1]))))
