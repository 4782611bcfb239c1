"""An event loop in which a wait takes no time, unless something outside this process is waited for."""

import asyncio
import selectors
from collections.abc import Iterator
from contextlib import contextmanager

from tests.patient_loop import PatientLoop


class _Selector(selectors.DefaultSelector):
    """Leaps over what it is asked to wait for, where it may."""

    def __init__(self) -> None:
        super().__init__()
        self.leapt_seconds = 0.0
        self.may_leap = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0 or not self.may_leap:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self.leapt_seconds += timeout
        return ready


class LeapingLoop(PatientLoop):
    """A patient loop whose time leaps to the next timer once `leap` was called, except within `in_real_time`."""

    def __init__(self) -> None:
        self._leaps = _Selector()
        self._is_leaping, self._outside = False, 0
        super().__init__(self._leaps)
        self._began = self.time()

    @staticmethod
    def running() -> "LeapingLoop":
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LeapingLoop), "this test is to run on a LeapingLoop"
        return loop

    def time(self) -> float:
        return super().time() + self._leaps.leapt_seconds

    def passed_ns(self) -> int:
        """Return how many nanoseconds have passed in it."""
        return round((self.time() - self._began) * 1e9)

    def leap(self) -> None:
        """Start to leap: from now on whatever comes from outside is waited for within `in_real_time`."""
        self._is_leaping = True
        self._decide()

    @contextmanager
    def in_real_time(self) -> Iterator[None]:
        """Wait for something outside: time passes here as it does there."""
        self._outside += 1
        self._decide()
        try:
            yield
        finally:
            self._outside -= 1
            self._decide()

    def _decide(self) -> None:
        self._leaps.may_leap = self._is_leaping and not self._outside
