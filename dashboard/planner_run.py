"""Simulations in separate processes: progress, result, and cancellation."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import streamlit as st

from analytics.planner.question import PlanJob
from contracts.errors import Unavailable

MAX_RUNS: Final = 2  # concurrent simulations of all viewers; each uses a core
MAX_SECONDS: Final = 600.0
UNSEEN_SECONDS: Final = 15.0  # a simulation not viewed for so long may be replaced
_ENDING_SECONDS: Final = 5.0
COMMAND: Final = (sys.executable, "-P", "-m", "dashboard.planner_child")


class PlannerRun:
    """One simulation. `stages`: those started so far; `answer` and `refused` are `None` until it has ended."""

    def __init__(self, job: PlanJob, command: Sequence[str], clock: Callable[[], float], on_end: Callable[[], None]):
        self.job = job
        self.stages: list[str] = []
        self.answer: dict[str, Any] | None = None
        self.refused: str | None = None
        self._clock = clock
        self._began = self._looked_at = clock()
        self._ended: float | None = None
        self._on_end = on_end
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._limit = threading.Timer(
            MAX_SECONDS, self._stop, [f"the simulation took longer than {MAX_SECONDS:g} seconds"]
        )
        self._limit.daemon = True
        self._limit.start()
        self._listener = threading.Thread(target=self._listen, name="planner-run", daemon=True)
        self._listener.start()

    @property
    def is_over(self) -> bool:
        """Return whether the simulation has ended, with a result or not."""
        return self._ended is not None

    @property
    def seconds(self) -> float:
        """Return how long the simulation has run, in seconds."""
        return (self._clock() if self._ended is None else self._ended) - self._began

    @property
    def is_unseen(self) -> bool:
        """Return whether it still runs although no page has shown it for UNSEEN_SECONDS."""
        is_under_way = not self.is_over and self.refused is None
        return is_under_way and self._clock() - self._looked_at >= UNSEEN_SECONDS

    def look(self) -> None:
        """Record that a page shows it now."""
        self._looked_at = self._clock()

    def cancel(self, why: str = "the simulation was cancelled") -> None:
        """Kill the simulation's process; `why` becomes its `refused` text."""
        self._stop(why)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for its end, at most `timeout_seconds`; return whether it has ended."""
        self._listener.join(timeout_seconds)
        return self.is_over

    def _stop(self, why: str) -> None:
        if not self.is_over:
            self.refused = self.refused or why
            self._process.kill()

    def _listen(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            with self._process.stdout as told:  # closed even if the process is killed before it has read its input
                with self._process.stdin as asked:
                    asked.write(self.job.as_bytes())
                for line in told:
                    self._take(json.loads(line))
        except (OSError, ValueError):
            pass  # killed within a line; `refused` has the reason
        finally:
            self._process.wait()
            self._limit.cancel()
            if self.answer is None and self.refused is None:
                self.refused = f"the simulation ended without a result (status {self._process.returncode})"
            self._ended = self._clock()
            self._on_end()

    def _take(self, said: dict[str, Any]) -> None:
        if "stage" in said:
            self.stages.append(said["stage"])
        self.answer = said.get("answer", self.answer)
        self.refused = said.get("refused", self.refused)


class PlannerRuns:
    """Starts simulations, with a limit on how many run at once."""

    def __init__(
        self, command: Sequence[str] = COMMAND, clock: Callable[[], float] = time.monotonic, most: int = MAX_RUNS
    ) -> None:
        self._command = command
        self._clock = clock
        self._most = most
        self._places = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._runs: list[PlannerRun] = []  # started, and not known to have ended

    def begin(self, job: PlanJob) -> PlannerRun:
        """Start a simulation; at the limit it replaces one that no page shows. Raises Unavailable if all are shown."""
        if not self._places.acquire(blocking=False) and not self._take_place():
            raise Unavailable(f"the limit of concurrent simulations ({self._most}) is reached; try again shortly")
        try:
            run = PlannerRun(job, self._command, self._clock, self._places.release)
        except OSError as error:
            self._places.release()
            raise Unavailable(f"the simulation cannot be started: {error.strerror}") from error
        with self._lock:
            self._runs = [*(other for other in self._runs if not other.is_over), run]
        return run

    def _take_place(self) -> bool:
        with self._lock:
            unseen = next((run for run in self._runs if run.is_unseen), None)
            if unseen is None:
                return False
            unseen.cancel(f"not viewed for {UNSEEN_SECONDS:g} seconds, so another simulation replaced it")
        return self._places.acquire(timeout=_ENDING_SECONDS)


@st.cache_resource(show_spinner=False)
def planner_runs() -> PlannerRuns:
    """Return this process's `PlannerRuns`."""
    return PlannerRuns()
