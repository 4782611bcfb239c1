"""Forwards batches to one destination besides the store: from its own spool, in its own thread."""

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
    """The destination did not accept a batch and may accept it later. Its text names no batch and no credential."""


class BatchRefused(Exception):
    """The destination permanently refuses this batch."""


@dataclass(frozen=True, slots=True)
class Gathering:
    """When to send collected batches: at this many bytes, or when the first has waited this many seconds."""

    max_bytes: int
    seconds: float


Clean = Callable[[SpooledBatch], SpooledBatch | None]


class Destination(Protocol):
    """The interface of a destination. A batch is sent again until it is acknowledged."""

    @property
    def gathering(self) -> Gathering | None:
        """Return when collected batches are sent; `None` if each batch is sent alone."""

    @property
    def name(self) -> str:
        """Return the destination's name in metrics and the log."""

    def takes(self, batch: SpooledBatch) -> bool:
        """Return whether to send a batch to this destination."""

    def send(self, batches: Sequence[SpooledBatch]) -> None:
        """Send batches and wait for the acknowledgement. Raises DestinationAway, BatchRefused."""

    def close(self) -> None:
        """Close the connection."""


class Forwarder:
    """Queues batches for one destination on disk and sends them in order, without delaying the store.

    A batch is in this spool before its sender gets an acknowledgement, and is removed when the destination has it.
    After a crash some batches are sent again, with the same id. If the spool is full, further batches are counted and
    not forwarded. After a crash a group of batches starts with the same batch, but may contain more of them.
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
        """Set the parts; `clean` returns a batch without the contents that must not leave the installation."""
        self._spool = spool
        self._destination = destination
        self._counters = counters
        self._backoff = backoff
        self._clean = clean
        self._clock_ns = clock_ns
        self._stopping = threading.Event()
        self._deadline = 0.0
        # First queued batch: position, receipt
        self._oldest: tuple[Position, int] | None = None
        self.failure = ""  # error of the last attempt; empty if it succeeded
        self._thread = threading.Thread(target=self._run, name=f"forward {destination.name}", daemon=True)

    @property
    def name(self) -> str:
        """Return the destination's name."""
        return self._destination.name

    @property
    def waiting_bytes(self) -> int:
        """Return the number of queued bytes."""
        return self._spool.pending_bytes

    def put(self, batches: Sequence[SpooledBatch]) -> None:
        """Queue the batches that the destination takes. Never raises."""
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
        """Start the sending thread."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Send for at most `seconds`, then stop. Queued batches are sent after the next start."""
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
            except Exception:  # top of the thread: an unexpected error must not end forwarding
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
        return not 0 <= age_seconds < gathering.seconds  # a clock that was set back does not delay sending

    def _oldest_ns(self) -> int | None:
        """Return when the first queued batch was received (Unix ns), cached; `None` if it is unreadable."""
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
        """Return the queued entries in groups to send together. The groups depend only on the first queued entry."""
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
