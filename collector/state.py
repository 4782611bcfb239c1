"""The state of a collector that its health page and metrics show."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backends.segment_log.disk_room import WatchedDisk
from collector.counters import Counters
from collector.dead_letters import DeadLetters
from collector.exporters.clickhouse import ClickHouseExporter
from collector.forwarding.forwarder import Forwarder
from collector.spool import Spool


@dataclass(frozen=True, slots=True)
class CollectorState:
    """Spool, forwarders, dead letters, losses, and the connection to the store."""

    spool: Spool
    exporter: ClickHouseExporter
    dead_letters: DeadLetters
    counters: Counters
    missing: tuple[dict[str, object], ...] = ()  # data that was missing at the start
    disks: Sequence[WatchedDisk] = ()
    forwarders: Sequence[Forwarder] = ()
    clock_ns: Callable[[], int] = time.time_ns

    @property
    def is_disk_full(self) -> bool:
        """Return whether the spool's disk has too little free space."""
        return self.spool.is_disk_full or any(disk.state == "full" for disk in self.disks)

    def queue_age_seconds(self) -> float | None:
        """Return the age of the oldest batch that the store does not have; `None` if nothing waits."""
        oldest = self.spool.oldest_received_at_ns()
        return None if oldest is None else max(self.clock_ns() - oldest, 0) / 1e9
