"""Time since the machine started, also while it is suspended. Setting the wall clock does not move it."""

import time
from collections.abc import Callable
from functools import partial

# Nanoseconds since the machine started; elsewhere than on Linux without the time in which it was suspended.
since_boot_ns: Callable[[], int] = time.monotonic_ns
if hasattr(time, "CLOCK_BOOTTIME"):
    since_boot_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
