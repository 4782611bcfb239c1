"""Wall clock and monotonic clock of a request, passed as parameters so that tests can set them."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from backends.processes.boot_time import since_boot_ns
from backends.processes.native import mypyc_attr

_log = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 2.0
_SET_SECONDS: Final = 1.0  # less is not said


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """`wall_ns` is Unix time for records, `monotonic_ns` is for durations: the wall clock may jump."""

    __slots__ = ("_began_ns", "_elapsed_ns", "monotonic_ns", "wall_ns")

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.wall_ns = wall_ns
        self.monotonic_ns = monotonic_ns
        self._elapsed_ns = since_boot_ns if monotonic_ns is time.monotonic_ns else monotonic_ns
        self._began_ns = wall_ns() - self._elapsed_ns()

    def steady_ns(self) -> int:
        """Return Unix time (ns) at this clock's creation plus the elapsed time: for limits and budgets.

        It is monotonic. If the wall clock is changed, no window and no period ends early or is counted twice.
        """
        return self._began_ns + self._elapsed_ns()

    def set_seconds(self) -> float:
        """Return by how many seconds the wall clock was set forward since this clock was created; negative: back."""
        return (self.wall_ns() - self.steady_ns()) / 1_000_000_000

    @property
    def is_set(self) -> bool:
        """Return whether the wall clock was changed: then limits and budgets use another time than records do."""
        return abs(self.set_seconds()) >= _SET_SECONDS

    async def watch(self) -> None:
        """Log each setting of the wall clock once, until cancelled."""
        told = 0.0
        while True:
            set_seconds = self.set_seconds()
            if abs(set_seconds - told) >= _SET_SECONDS:
                told = set_seconds
                _log.warning(
                    "the machine's clock was set; limits and budgets use elapsed time until a restart",
                    extra={"set_seconds": round(set_seconds, 3)},
                )
            await asyncio.sleep(_EVERY_SECONDS)
