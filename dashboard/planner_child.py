"""`python -m dashboard.planner_child`: plays one plan that stands on its input, and says on its output how far it is.

A process of its own: a plan takes a processor core for seconds or minutes, and the pages of all viewers share one.
Each line of its output is JSON: `{"stage": ...}` as often as one begins, then `{"answer": ...}` or `{"refused": ...}`.
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

_NICENESS = 10  # pages go first
_ANSWER_SECONDS = 600
_LIMIT_SECONDS = 630  # after the dashboard's own, which says why
_LOOK_SECONDS = 1.0


def main() -> None:
    """Play the plan. What it refuses is an answer; it never ends with a traceback of ours."""
    os.nice(_NICENESS)
    signal.alarm(_LIMIT_SECONDS)  # by the system, which compiled code cannot keep waiting
    threading.Thread(target=end_with_parent, args=(lambda: os._exit(1),), daemon=True).start()
    use_compiled()
    from analytics.planner.job import run_job  # here: what is compiled is found from now on

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
    """Wait until the process that began this one is gone, and call `end`: nobody is left to be answered."""
    first = parent()
    while parent() == first:
        rest(_LOOK_SECONDS)
    end()


def _say(line: Mapping[str, object]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
