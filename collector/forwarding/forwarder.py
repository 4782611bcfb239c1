"""One destination beside the store: a spool of its own, and a thread that sends what waits there."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final, Protocol

from collector.counters import Counters
from collector.exporters.backoff import Backoff
from collector.spool import Spool, SpooledBatch
from contracts.errors import LimitExceeded, Unavailable

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 1.0
_READ_BYTES: Final = 8 << 20


class DestinationAway(Exception):
    """The destination did not take a batch and may take it later. Its text names no batch and no credential."""


class BatchRefused(Exception):
    """The destination will never take this batch."""


class Destination(Protocol):
    """Takes batches, each again until it has acknowledged it."""

    @property
    def name(self) -> str:
        """Return what it is called in metrics and the log."""

    def takes(self, batch: SpooledBatch) -> bool:
        """Return whether a batch is meant for it."""

    def send(self, batch: SpooledBatch) -> None:
        """Send a batch; when this returns, the destination has it. Raises DestinationAway, BatchRefused."""

    def close(self) -> None:
        """Close the connection."""


class Forwarder:
    """Keeps what waits for one destination and sends it in order. The store never waits for it.

    A batch is in this spool before its sender hears that it was received, and leaves it once the destination has it: a
    crash sends some again, under the same id. Where the spool is full, later batches are not forwarded, and counted.
    """

    def __init__(self, spool: Spool, destination: Destination, counters: Counters, backoff: Backoff) -> None:
        self._spool = spool
        self._destination = destination
        self._counters = counters
        self._backoff = backoff
        self._stopping = threading.Event()
        self._deadline = 0.0
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
        """Begin to send."""
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
        return self._spool.pending_bytes == 0 or bool(self.failure)

    def _send_waiting(self) -> None:
        while entries := self._spool.read(self._spool.cursor, max_bytes=_READ_BYTES):
            for entry in entries:
                if self._stopping.is_set() and time.monotonic() > self._deadline:
                    return
                if entry.batch is not None:
                    self._send(entry.batch)
                self._spool.release(entry.end)

    def _send(self, batch: SpooledBatch) -> None:
        try:
            self._destination.send(batch)
        except BatchRefused as error:
            _log.warning("batch_refused", extra={"to": self.name, "batch": batch.batch_id, "reason": str(error)})
            self._counters.noticed(f"refused_by_{self.name}")
            return
        self._counters.noticed(f"forwarded_to_{self.name}")
        if self.failure:
            _log.info("destination_back", extra={"to": self.name})
            self.failure = ""

    def _note(self, failure: str) -> None:
        if not self.failure:
            _log.warning("destination_away", extra={"to": self.name, "reason": failure})
        self.failure = failure
