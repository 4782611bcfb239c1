"""Time since the machine started, also while it is suspended. Setting the wall clock does not move it."""

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def since_boot_ns() -> int:
        """Return the time since the machine started, in nanoseconds."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

else:  # elsewhere than on Linux: without the time in which the machine was suspended

    def since_boot_ns() -> int:
        """Return the time since the machine started, in nanoseconds."""
        return time.monotonic_ns()
