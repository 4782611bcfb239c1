"""`python -m dashboard.planner_child`: reads one simulation from stdin, runs it and writes progress to stdout.

A separate process, because a simulation uses a core for seconds or minutes, and all viewers' pages share one core.
Each line of its output is JSON: `{"stage": ...}` when a stage starts, then `{"answer": ...}` or `{"refused": ...}`.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from analytics.planner.question import PlanJob
from backends.processes.compiled import use_compiled
from backends.store.client import StoreClient
from contracts.errors import TollkeeperError
from dashboard.settings import DashboardSettings

_NICENESS = 10  # lower priority than the pages
_ANSWER_SECONDS = 600
_LIMIT_SECONDS = 630  # longer than the dashboard's own limit, whose message has the reason
_LOOK_SECONDS = 1.0


def main() -> None:
    """Run the simulation and write its result. A refusal is a result too, not a traceback."""
    os.nice(_NICENESS)
    signal.alarm(_LIMIT_SECONDS)  # by a signal, which also ends compiled code
    threading.Thread(target=end_with_parent, args=(lambda: os._exit(1),), daemon=True).start()
    use_compiled()
    from analytics.planner.job import run_job  # imported here: compiled modules are found from now on

    try:
        job = PlanJob.of_bytes(sys.stdin.buffer.read())
        store = StoreClient(DashboardSettings().store_address(), answer_seconds=_ANSWER_SECONDS)
        _say({"answer": run_job(job, store, lambda stage: _say({"stage": stage}))})
    except TollkeeperError as error:
        _say({"refused": error.message})


def end_with_parent(
    end: Callable[[], object],
    parent: Callable[[], int] = os.getppid,
    rest: Callable[[float], object] = time.sleep,
) -> None:
    """Wait until the parent process has ended, then call `end`: nobody would read the result."""
    first = parent()
    while parent() == first:
        rest(_LOOK_SECONDS)
    end()


def _say(line: Mapping[str, object]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
