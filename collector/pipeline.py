"""The road of a batch: received -> judged -> spooled, then acknowledged -> processed -> exported -> released."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from collector.counters import Counters
from collector.processors.signal import SignalProcessor, Survey
from collector.rows import Processed
from collector.spool import Signal, Spool, SpooledBatch
from contracts.ids import uuid7


class Pipeline:
    """Receivers call `accept` in one thread; the exporter reads the spool and calls `process` in another."""

    def __init__(
        self,
        processors: Mapping[Signal, SignalProcessor[Any]],
        spool: Spool,
        counters: Counters,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.processors = processors
        self._spool = spool
        self._counters = counters
        self._clock_ns = clock_ns
        self._one_writer = threading.Lock()

    def accept(self, signal: Signal, body: bytes, *, is_json: bool) -> Survey:
        """Take an export request: when this returns, all of it is on disk or was there before. Blocks on the disk.

        A sender's batch id is kept; what has none is given one here, so that it too is exported exactly once.
        Raises InvalidRequest, LimitExceeded (spool full) or Unavailable (disk failing); then nothing was kept.
        """
        processor = self.processors[signal]
        message = processor.parse_json(body) if is_json else processor.parse(body)
        survey = processor.survey(message)
        if survey.records == 0:
            return survey
        now = self._clock_ns()
        parts = processor.split(message, message.SerializeToString() if is_json else body)
        batches = [SpooledBatch(own or str(uuid7(now)), signal, now, part) for own, part in parts]
        with self._one_writer:
            fresh = self._spool.put(batches)
        self._counters.noticed("duplicate_batches", len(batches) - fresh)
        self._counters.received(signal, survey.records)
        return survey

    def process(self, batch: SpooledBatch) -> Processed:
        """Make rows of a spooled batch."""
        return self.processors[batch.signal].process(batch)
