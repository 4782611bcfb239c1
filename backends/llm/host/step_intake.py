"""Writes step records of one host to disk: each once, in order, and acknowledged only after the write."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from backends.llm.base import EngineRecords
from contracts.engine.wire import Steps
from contracts.errors import InvalidRecord
from contracts.recording.records import EVENT_NAMES, AttemptRecord, event_name_of

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.5
_ACCOUNT: Final = EVENT_NAMES[AttemptRecord]  # the account of a request whose gateway disconnected


class _StepHead(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="step.1", kw_only=True):
    """The beginning of a packed StepRecord, enough to recognize repeated ones."""

    engine: str
    sequence: int


_head_decoder: Final = msgspec.msgpack.Decoder(_StepHead)


class StepIntake:
    """Queues records that cannot be written yet. The queue is bounded, because the host limits
    unacknowledged records.
    """

    def __init__(self, records: EngineRecords | None) -> None:
        self._records = records
        self._last: dict[str, int] = {}  # by engine: the sequence of the last record written
        self._waiting: deque[tuple[Steps, Callable[[int], None]]] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self.unreadable_records = 0

    def take(self, steps: Steps, acknowledge: Callable[[int], None]) -> None:
        """Write a frame's records, now or as soon as there is room, and acknowledge them."""
        self._waiting.append((steps, acknowledge))
        if self._retry is None:
            self._write()

    def forget(self) -> None:
        """Clear the queue after a lost connection: the host sends the records again."""
        self._waiting.clear()

    def close(self) -> None:
        """Stop retrying."""
        if self._retry is not None:
            self._retry.cancel()

    def _write(self) -> None:
        self._retry = None
        if self._records is None:
            self._waiting.clear()
            return
        while self._waiting:
            steps, acknowledge = self._waiting[0]
            new, seen = self._not_seen(steps.records)
            if new and not self._records.take_steps(new):
                self._retry = asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._write)
                return
            self._last.update(seen)
            self._waiting.popleft()
            acknowledge(steps.last_sequence)

    def _not_seen(self, packed: list[bytes]) -> tuple[list[bytes], dict[str, int]]:
        """Return the records that were not written before; a host repeats those whose acknowledgement was lost."""
        new: list[bytes] = []
        last: dict[str, int] = {}
        for record in packed:
            try:
                if event_name_of(record) == _ACCOUNT:
                    new.append(record)
                    continue
                head = _head_decoder.decode(record)
            except (msgspec.MsgspecError, InvalidRecord):
                _log.error("step record left out", extra={"reason": "it cannot be read", "bytes": len(record)})
                self.unreadable_records += 1
                continue
            if head.sequence > last.get(head.engine, self._last.get(head.engine, -1)):
                last[head.engine] = head.sequence
                new.append(record)
        return new, last
