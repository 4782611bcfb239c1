"""The memory limiter: above a limit of resident memory, requests are refused and senders retry."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from contracts.errors import LimitExceeded

_LOOK_SECONDS: Final = 0.25
_RETRY_SECONDS: Final = 2.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Return this process's resident memory in bytes, from /proc; 0 if there is no /proc."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


class MemoryLimiter:
    """Refuses new requests while the process uses more than `max_bytes`, measured at most four times a second.

    Thread-safe. Acknowledged data is on disk and is not affected.
    """

    def __init__(
        self,
        max_bytes: int,
        read_bytes: Callable[[], int] = resident_bytes,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_bytes = max_bytes
        self._read_bytes = read_bytes
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._held = 0

    def check(self) -> None:
        """Raise LimitExceeded (429, code memory_pressure) while memory use is above the limit."""
        with self._lock:
            now = self._monotonic()
            if now - self._looked_at >= _LOOK_SECONDS:
                self._looked_at, self._held = now, self._read_bytes()
            held = self._held
        if held > self.max_bytes:
            raise LimitExceeded(
                f"the collector holds {held} of at most {self.max_bytes} bytes of memory "
                "(TOLLKEEPER_COLLECTOR_MAX_MEMORY_BYTES); send this batch again",
                code="memory_pressure",
                retry_after_seconds=_RETRY_SECONDS,
            )
