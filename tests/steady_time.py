"""Time without the stalls of the machine: what a test waits for is given as long as it was promised."""

import threading
import time
from collections.abc import Callable

_LOOK_SECONDS = 0.02
_LONGEST_LOOK_SECONDS = 0.1


class SteadyTime:
    """Seconds that move on by at most a step between two looks."""

    def __init__(self, now: float, longest_step_seconds: float) -> None:
        self._lost = 0.0
        self._last_look = now
        self._longest_step_seconds = longest_step_seconds

    def at(self, now: float) -> float:
        """Return the time, where the clock beneath shows `now`, in seconds."""
        self._lost += max(now - self._last_look - self._longest_step_seconds, 0.0)
        self._last_look = now
        return now - self._lost


class Stopwatch:
    """Seconds since its start, without those in which this process stood still: a thread looks out for them."""

    def __enter__(self) -> "Stopwatch":
        self._began = time.monotonic()
        self._steady = SteadyTime(self._began, _LONGEST_LOOK_SECONDS)
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._look_out, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def seconds(self) -> float:
        """Return what has passed so far."""
        with self._lock:
            return self._steady.at(time.monotonic()) - self._began

    def _look_out(self) -> None:
        while not self._is_over.wait(_LOOK_SECONDS):
            self.seconds()


def poll_within(condition: Callable[[], object], seconds: float) -> bool:
    """Look again and again until something is so; return whether it was within the given number of seconds."""
    with Stopwatch() as watch:
        while not condition():
            if watch.seconds() >= seconds:
                return False
            time.sleep(0.01)
    return True
