"""Time since the machine started, including time suspended. Not affected by changes of the wall clock."""

import time
from collections.abc import Callable
from functools import partial

# Nanoseconds since the machine started; on systems other than Linux without time suspended.
since_boot_ns: Callable[[], int] = time.monotonic_ns
if hasattr(time, "CLOCK_BOOTTIME"):
    since_boot_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
