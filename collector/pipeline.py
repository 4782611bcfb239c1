"""The stages of a batch: received, admitted, spooled, acknowledged; then processed, exported, released."""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from collector.arrival import Arrival, ArrivalStep
from collector.counters import Counters
from collector.processors.signal import SignalProcessor
from collector.rows import Processed
from collector.spool import Signal, Spool, SpooledBatch
from contracts.errors import InvalidRequest
from contracts.recording.ids import uuid7

UNREADABLE: Final = "unreadable_record"
_DIGEST_BYTES: Final = 16
_TIMED_SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics")


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to a sender: number of records received, number rejected permanently, and the reason."""

    records: int
    rejected: int
    reason: str


class RowStep(Protocol):
    """A step between spool and store, called only by the exporter's thread."""

    def apply(self, processed: Processed, batch: SpooledBatch) -> None:
        """Change rows in place. Must not change their number or order, which identify rows if a batch is repeated."""


class Forwards(Protocol):
    """Queues batches for a destination other than the store."""

    def put(self, batches: Sequence[SpooledBatch]) -> None:
        """Queue the batches that the destination takes. Never raises."""


class Pipeline:
    """Receivers call `accept` from their threads; the exporter reads the spool and calls `process` in its own."""

    def __init__(
        self,
        processors: Mapping[Signal, SignalProcessor[Any]],
        spool: Spool,
        counters: Counters,
        clock_ns: Callable[[], int] = time.time_ns,
        *,
        arrival_steps: Sequence[ArrivalStep] = (),
        row_steps: Sequence[RowStep] = (),
        forwards: Sequence[Forwards] = (),
    ) -> None:
        self._forwards = forwards
        self.processors = processors
        self._spool = spool
        self._counters = counters
        self._clock_ns = clock_ns
        self._arrival_steps = arrival_steps
        self._row_steps = row_steps
        self._one_writer = threading.Lock()

    def accept(self, signal: Signal, body: bytes, *, is_json: bool) -> Receipt:
        """Write an export request to the spool; when this returns, all of it is on disk. Blocks on the disk.

        A sender's batch id is used; a batch without one gets an id here, so that it is exported exactly once too.
        Unreadable records are dropped and reported to the sender. Raises InvalidRequest, LimitExceeded (spool full, a
        tenant's quota) or Unavailable (disk failure); nothing was stored then.
        """
        arrival = self._read(signal, body, is_json)
        if arrival.records == 0:
            return Receipt(0, 0, "")
        for step in self._arrival_steps:
            step.admit(arrival)
        self.keep(signal, arrival.message, arrival.body)
        self._counters.received(signal, arrival.records)
        for cause, records in arrival.rejected.items():
            if cause == UNREADABLE:  # steps count their rejected records themselves, by tenant
                self._counters.rejected(cause, records)
        # A step may have refused records that were unreadable too; never report more than were sent.
        rejected = min(arrival.rejected.total(), arrival.records)
        return Receipt(arrival.records, rejected, "; ".join(arrival.reasons))

    def keep(self, signal: Signal, message: Any, body: bytes | None = None) -> None:
        """Write a request to the spool. `body`: its serialised form, if known. Raises as `accept` does."""
        processor = self.processors[signal]
        parts = processor.split(message, message.SerializeToString() if body is None else body)
        now = self._clock_ns()
        batches = [self._batch(own, signal, now, part) for own, part in parts]
        with self._one_writer:
            for destination in self._forwards:  # before the acknowledgement, which covers all destinations
                destination.put(batches)
            fresh = self._spool.put(batches)
        self._counters.noticed("duplicate_batches", len(batches) - fresh)

    def process(self, batch: SpooledBatch) -> Processed:
        """Return the rows of a spooled batch."""
        processed = self.processors[batch.signal].process(batch)
        for step in self._row_steps:
            step.apply(processed, batch)
        return processed

    def _read(self, signal: Signal, body: bytes, is_json: bool) -> Arrival:
        processor = self.processors[signal]
        lost = 0
        sound: bytes | None = body
        if is_json:
            message, sound = processor.parse_json(body), None
        else:
            try:
                message = processor.parse(body)
            except InvalidRequest:
                sound, lost = processor.salvage(body)
                message = processor.parse(sound)
        survey = processor.survey(message)
        arrival = Arrival(processor, message, sound, survey.records + lost)
        if survey.unreadable + lost:
            arrival.rejected["unreadable"] = survey.unreadable
            arrival.rejected[UNREADABLE] = lost
            arrival.reasons.append(f"{survey.unreadable + lost} of {arrival.records} records cannot be read")
        return arrival

    def _batch(self, own: str, signal: Signal, now_ns: int, payload: bytes) -> SpooledBatch:
        """Return the batch with an id. Without a sender's id it is a hash of the bytes, which recognises a retry.

        Logs get a random id: log lines may have no time, and two equal lines are two records.
        """
        if not own and signal in _TIMED_SIGNALS:
            own = hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).hexdigest()
        return SpooledBatch(own or str(uuid7(now_ns)), signal, now_ns, payload, bool(own))
