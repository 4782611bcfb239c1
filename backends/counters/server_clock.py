"""Estimates Redis' clock: lower and upper bounds of its offset from this process's monotonic clock."""

import time
from collections.abc import Callable
from typing import Final

from backends.processes.boot_time import since_boot_ns
from backends.processes.native import mypyc_attr

_DRIFT: Final = 5000  # clocks differ in speed by less than one part in this many: 200 ppm


@mypyc_attr(allow_interpreted_subclasses=True)  # tests tell the server the time
class ServerClock:
    """Estimates the time at Redis. Each answer contains the server's time between sending and receiving.

    The script keeps Redis' time steady if the server's clock is set, with the help of `expected_us`. Until the first
    answer, this machine's clock is used.
    """

    def __init__(
        self, monotonic_ns: Callable[[], int] = since_boot_ns, wall_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._low_ns = self._high_ns = wall_ns() - monotonic_ns()
        self._seen_ns = monotonic_ns()
        self._is_known = False
        self.offset_ns = self._low_ns

    @property
    def told_us(self) -> int:
        """Return the time that Redis is to use instead of its own; 0: its own."""
        return 0

    def now_ns(self, told_ns: int = 0) -> int:
        """Return this process's monotonic time. The caller's time is not used: it may jump."""
        return self._monotonic_ns()

    def error_ns(self, now_ns: int) -> int:
        """Return how far `now_ns + offset_ns` may be from the time at Redis."""
        return (self._high_ns - self._low_ns) // 2 + (now_ns - self._seen_ns) // _DRIFT + 1

    def expected_us(self, now_ns: int) -> int:
        """Return the earliest time that Redis can have now; 0 before its first answer."""
        return (now_ns + self._low_ns) // 1000 if self._is_known else 0

    def observe(self, sent_ns: int, received_ns: int, server_ns: int) -> None:
        """Record an answer's time, with the monotonic times around it."""
        low_ns, high_ns = server_ns - received_ns, server_ns - sent_ns
        if self._is_known:
            drift_ns = (received_ns - self._seen_ns) // _DRIFT + 1
            old_low_ns, old_high_ns = self._low_ns - drift_ns, self._high_ns + drift_ns
            if max(low_ns, old_low_ns) <= min(high_ns, old_high_ns):
                low_ns, high_ns = max(low_ns, old_low_ns), min(high_ns, old_high_ns)
        self._low_ns, self._high_ns, self._is_known = low_ns, high_ns, True
        self._seen_ns = received_ns
        self.offset_ns = (low_ns + high_ns) // 2
