"""How late a process that costs nothing wakes on a core, and what that alone makes of a stream's chunks.

`python -m bench.load.sleeper SECONDS` sleeps until the next fifth of a millisecond, over and over, and prints as JSON
by how many nanoseconds each wake was late. A process that never sleeps would not see it: while it runs, what else wants
to run (the kernel's own threads among it, which nothing interrupts) goes to another core.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from bench.load.machine import pinned_to

STEP_NS: Final = 200_000
_SLACK: Final = Path("/proc/self/timerslack_ns")
_PATIENCE_SECONDS: Final = 30.0


class Sleeper:
    """Such a process. `with` ends it where it has not been waited for."""

    def __init__(self, core: int, seconds: float) -> None:
        command = [sys.executable, "-m", "bench.load.sleeper", f"{seconds:g}"]
        with pinned_to(core):
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._patience = seconds + _PATIENCE_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def lates_ns(self) -> list[int]:
        """Wait for its end and return how late each wake was. Raises RuntimeError if it says nothing in time."""
        try:
            said, _ = self._process.communicate(timeout=self._patience)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError("the process that only sleeps does not end") from error
        if self._process.returncode:
            raise RuntimeError(f"the process that only sleeps ended with {self._process.returncode}")
        return list(json.loads(said))


def jitter_ns(lates: Sequence[int], gap_ns: int, quantile: float) -> int:
    """Return the quantile of what chunks so far apart lose or gain on each other where each leaves as late as a wake.

    Raises ValueError if the wakes do not span one gap.
    """
    apart = gap_ns // STEP_NS
    found = sorted(abs(after - before) for before, after in zip(lates, lates[apart:], strict=False))
    if not found:
        raise ValueError(f"{len(lates)} wakes, {STEP_NS / 1e6:g} ms apart, do not span {gap_ns / 1e6:g} ms")
    return found[round(quantile * (len(found) - 1))]


def _sleep(seconds: float) -> list[int]:
    _SLACK.write_text("1000")  # else the kernel adds up to 50 us
    found: list[int] = []
    due = time.monotonic_ns()
    end = due + int(seconds * 1e9)
    while due < end:
        due += STEP_NS
        left = due - time.monotonic_ns()
        if left > 0:
            time.sleep(left / 1e9)
        found.append(max(time.monotonic_ns() - due, 0))
    return found


if __name__ == "__main__":
    print(json.dumps(_sleep(float(sys.argv[1]))))
