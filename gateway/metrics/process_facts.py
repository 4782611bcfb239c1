"""What the operating system says of this process, under the names that Prometheus' own libraries use."""

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.metrics.exposition import Family, counter, gauge

_STATM: Final = Path("/proc/self/statm")
_DESCRIPTORS: Final = Path("/proc/self/fd")


class ProcessFacts:
    """Reads memory, time and descriptors. What a system does not tell (no /proc) is left out."""

    def __init__(self) -> None:
        self._started_at = time.time()

    def families(self) -> Iterator[Family]:
        """Give the process's metrics."""
        yield counter("process_cpu_seconds_total", "Processor time used, user and system.", time.process_time())
        yield gauge("process_start_time_seconds", "When the gateway was started, in Unix time.", self._started_at)
        try:
            virtual, resident = (int(pages) * resource.getpagesize() for pages in _STATM.read_text().split()[:2])
        except (OSError, ValueError):
            pass
        else:
            yield gauge("process_virtual_memory_bytes", "Virtual memory.", virtual)
            yield gauge("process_resident_memory_bytes", "Resident memory.", resident)
        try:
            # Newer kernels give the number as the folder's size; listing 10,000 descriptors takes milliseconds.
            open_count = _DESCRIPTORS.stat().st_size or len(os.listdir(_DESCRIPTORS))
        except OSError:
            pass
        else:
            yield gauge("process_open_fds", "Open file descriptors.", open_count)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if most != resource.RLIM_INFINITY:
            yield gauge("process_max_fds", "The most file descriptors that may be open.", most)
