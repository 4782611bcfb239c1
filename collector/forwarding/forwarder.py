"""One destination beside the store: a spool of its own, and a thread that sends what waits there."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from backends.segment_log.segments import Position
from collector.counters import Counters
from collector.exporters.backoff import Backoff
from collector.spool import Spool, SpooledBatch, SpoolEntry
from contracts.errors import LimitExceeded, Unavailable

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 1.0
_READ_BYTES: Final = 8 << 20


class DestinationAway(Exception):
    """The destination did not take a batch and may take it later. Its text names no batch and no credential."""


class BatchRefused(Exception):
    """The destination will never take this batch."""


@dataclass(frozen=True, slots=True)
class Gathering:
    """How many batches come together: until they have this many bytes, or the first has waited this long."""

    max_bytes: int
    seconds: float


Clean = Callable[[SpooledBatch], SpooledBatch | None]


class Destination(Protocol):
    """Takes batches, each again until it has acknowledged it."""

    @property
    def gathering(self) -> Gathering | None:
        """Return how batches come together; `None` if each comes alone."""

    @property
    def name(self) -> str:
        """Return what it is called in metrics and the log."""

    def takes(self, batch: SpooledBatch) -> bool:
        """Return whether a batch is meant for it."""

    def send(self, batches: Sequence[SpooledBatch]) -> None:
        """Send batches; when this returns, the destination has them. Raises DestinationAway, BatchRefused."""

    def close(self) -> None:
        """Close the connection."""


class Forwarder:
    """Queues batches for one destination on disk and sends them in order, without delaying the store.

    A batch is in this spool before its sender gets an acknowledgement, and leaves it once the destination has it. After
    a crash some are sent again, with the same id. If the spool is full, later batches are counted and not forwarded.
    Batches that are sent together start with the same one after a crash, but may then be more.
    """

    def __init__(
        self,
        spool: Spool,
        destination: Destination,
        counters: Counters,
        backoff: Backoff,
        *,
        clean: Clean,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`clean` returns a batch as it may leave the installation."""
        self._spool = spool
        self._destination = destination
        self._counters = counters
        self._backoff = backoff
        self._clean = clean
        self._clock_ns = clock_ns
        self._stopping = threading.Event()
        self._deadline = 0.0
        self._oldest: tuple[Position, int] | None = None  # of the first that waits: its place, and when it came
        self.failure = ""  # why the last try failed; empty after one that did not
        self._thread = threading.Thread(target=self._run, name=f"forward {destination.name}", daemon=True)

    @property
    def name(self) -> str:
        """Return what the destination is called."""
        return self._destination.name

    @property
    def waiting_bytes(self) -> int:
        """Return how much waits for the destination."""
        return self._spool.pending_bytes

    def put(self, batches: Sequence[SpooledBatch]) -> None:
        """Keep the batches that are meant for the destination until it has them. Never raises."""
        wanted = [batch for batch in batches if self._destination.takes(batch)]
        if not wanted:
            return
        try:
            self._spool.put(wanted)
        except (LimitExceeded, Unavailable) as error:
            if not self.failure:
                _log.warning("batches_not_forwarded", extra={"to": self.name, "reason": error.message})
            self._counters.noticed(f"not_forwarded_to_{self.name}", len(wanted))

    def start(self) -> None:
        """Start to send."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Send what can be sent in the time given, then end. What waits is sent after the next start."""
        self._deadline = time.monotonic() + seconds
        self._stopping.set()
        self._spool.arrived.set()
        self._thread.join(seconds + _IDLE_SECONDS)
        if not self._thread.is_alive():
            self._destination.close()
            self._spool.close()

    def _run(self) -> None:
        while not (self._stopping.is_set() and (self._is_idle() or time.monotonic() > self._deadline)):
            self._spool.arrived.clear()
            try:
                self._send_waiting()
            except DestinationAway as error:
                self._note(str(error))
                self._stopping.wait(self._backoff.next_seconds())
            except Exception:  # the edge of the thread: were it to end, nothing would be forwarded any more
                if not self.failure:
                    _log.exception("forwarding_failed", extra={"to": self.name})
                self.failure = "an unexpected error; the log says which"
                self._stopping.wait(self._backoff.next_seconds())
            else:
                self._backoff.reset()
                if not self._stopping.is_set():
                    self._spool.arrived.wait(_IDLE_SECONDS)

    def _is_idle(self) -> bool:
        return bool(self.failure) or not self._is_due()

    def _is_due(self) -> bool:
        """Return whether a queued batch is due to be sent."""
        waiting, gathering = self._spool.pending_bytes, self._destination.gathering
        if waiting == 0 or gathering is None or waiting >= gathering.max_bytes:
            return waiting > 0
        oldest = self._oldest_ns()
        if oldest is None:
            return True
        age_seconds = (self._clock_ns() - oldest) / 1e9
        return not 0 <= age_seconds < gathering.seconds  # a clock that was set back holds up nothing

    def _oldest_ns(self) -> int | None:
        """Return when the first that waits was received; read once, since each arrival asks. `None`: unreadable."""
        cursor = self._spool.cursor
        if self._oldest is None or self._oldest[0] != cursor:
            found = self._spool.oldest_received_at_ns()
            self._oldest = None if found is None else (cursor, found)
        return None if self._oldest is None else self._oldest[1]

    def _send_waiting(self) -> None:
        while self._is_due():
            for entries in self._together():
                if self._stopping.is_set() and time.monotonic() > self._deadline:
                    return
                batches = [self._clean(entry.batch) for entry in entries if entry.batch is not None]
                if sound := [batch for batch in batches if batch is not None]:
                    self._send(sound)
                self._spool.release(entries[-1].end)

    def _together(self) -> list[list[SpoolEntry]]:
        """Return what waits, in the groups that are sent. Which they are follows from the first entry that waits."""
        gathering = self._destination.gathering
        if gathering is None:
            return [[entry] for entry in self._spool.read(self._spool.cursor, max_bytes=_READ_BYTES)]
        found: list[SpoolEntry] = []
        after, left = self._spool.cursor, gathering.max_bytes
        while left > 0 and (more := self._spool.read(after, max_bytes=left)):
            found += more
            after, left = more[-1].end, left - sum(entry.size for entry in more)
        return [found] if found else []

    def _send(self, batches: Sequence[SpooledBatch]) -> None:
        try:
            self._destination.send(batches)
        except BatchRefused as error:
            named = batches[0].batch_id
            _log.warning("batch_refused", extra={"to": self.name, "batch": named, "reason": str(error)})
            self._counters.noticed(f"refused_by_{self.name}", len(batches))
            return
        self._counters.noticed(f"forwarded_to_{self.name}", len(batches))
        if self.failure:
            _log.info("destination_back", extra={"to": self.name})
            self.failure = ""

    def _note(self, failure: str) -> None:
        if not self.failure:
            _log.warning("destination_away", extra={"to": self.name, "reason": failure})
        self.failure = failure
