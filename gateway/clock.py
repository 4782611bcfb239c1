"""The two clocks a request's life is told by, handed in so that tests can hold them."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`wall_ns` is Unix time for records, `monotonic_ns` is for durations: the wall clock may jump."""

    wall_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = time.monotonic_ns
