"""Buffers step records until a gateway acknowledges them, numbered across the host's engines. Bounded; losses are
recorded.

Numbers rise without gaps. Dropped records are replaced by one record per engine, of kind "lost", that spans their time
and has the sequence of the last one.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from contracts.engine.wire import Steps
from contracts.recording.records import AttemptRecord, StepRecord, encode_record

FRAME_BYTES: Final = 256 * 1024
IN_FLIGHT_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Entry:
    number: int
    engine: str  # empty for a request's account
    model: str
    sequence: int
    began_at_ns: int  # including the gap before it
    ended_at_ns: int
    packed: bytes
    is_loss: bool = False


@dataclass(slots=True)
class StepOutbox:
    """Buffers at most `max_bytes` of packed records. `lost` is the number dropped since the host's start."""

    max_bytes: int
    lost: int = 0
    pending_bytes: int = 0
    _last: int = 0
    _sent: deque[_Entry] = field(default_factory=deque)
    _sent_bytes: int = 0
    _unsent: deque[_Entry] = field(default_factory=deque)

    @property
    def pending(self) -> int:
        """Return the number of unacknowledged records."""
        return len(self._sent) + len(self._unsent)

    def add(self, records: Iterable[StepRecord]) -> None:
        """Add records; if there are too many, the older half of all is dropped."""
        for record in records:
            self._last += 1
            entry = _entry(self._last, record)
            self._unsent.append(entry)
            self.pending_bytes += len(entry.packed)
        if self.pending_bytes > self.max_bytes:
            self._drop_half()

    def add_account(self, record: AttemptRecord) -> None:
        """Add the account of a request whose gateway has disconnected; it is sent like step records."""
        self._last += 1
        packed = encode_record(record)
        began_ns = record.started_at_ns
        self._unsent.append(_Entry(self._last, "", record.model, 0, began_ns, began_ns + record.duration_ns, packed))
        self.pending_bytes += len(packed)

    def acknowledge(self, number: int) -> None:
        """Remove the sent records up to a number."""
        while self._sent and self._sent[0].number <= number:
            size = len(self._sent.popleft().packed)
            self._sent_bytes -= size
            self.pending_bytes -= size

    def rewind(self) -> None:
        """Send again from the first unacknowledged record on, since another gateway receives them now."""
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        self._sent_bytes = 0

    def next_frames(self) -> list[Steps]:
        """Return the frames to send now, so that at most 4 MiB plus one frame are unacknowledged."""
        frames: list[Steps] = []
        while self._unsent and self._sent_bytes < IN_FLIGHT_BYTES:
            packed: list[bytes] = []
            size = number = 0
            while self._unsent and size < FRAME_BYTES:
                entry = self._unsent.popleft()
                self._sent.append(entry)
                packed.append(entry.packed)
                size += len(entry.packed)
                number = entry.number
            self._sent_bytes += size
            frames.append(Steps(records=packed, last_sequence=number))
        return frames

    def _drop_half(self) -> None:
        """Replace the older half by "lost" records; records that were already sent are replaced only for the next
        gateway.
        """
        dropped: list[_Entry] = []
        while self.pending_bytes > self.max_bytes // 2 and self.pending > 1:
            entry = (self._sent or self._unsent).popleft()
            self.pending_bytes -= len(entry.packed)
            dropped.append(entry)
        self._sent_bytes = sum(len(entry.packed) for entry in self._sent)
        engines = list(dict.fromkeys(entry.engine for entry in dropped if entry.engine))  # accounts have no engine
        end = dropped[-1].number
        losses = [
            _loss(end - place, [entry for entry in dropped if entry.engine == engine])
            for place, engine in enumerate(engines)
        ]
        self.lost += sum(not entry.is_loss for entry in dropped)
        (self._sent or self._unsent).extendleft(losses)
        added = sum(len(loss.packed) for loss in losses)
        self.pending_bytes += added
        if self._sent:
            self._sent_bytes += added


def _entry(number: int, record: StepRecord, *, is_loss: bool = False) -> _Entry:
    return _Entry(
        number=number,
        engine=record.engine,
        model=record.model,
        sequence=record.sequence,
        began_at_ns=record.started_at_ns - record.gap_ns,
        ended_at_ns=record.started_at_ns + record.busy_ns,
        packed=encode_record(record),
        is_loss=is_loss,
    )


def _loss(number: int, dropped: list[_Entry]) -> _Entry:
    first, last = dropped[0], dropped[-1]
    record = StepRecord(
        engine=last.engine,
        sequence=last.sequence,
        started_at_ns=first.began_at_ns,
        busy_ns=max(0, last.ended_at_ns - first.began_at_ns),
        kind="lost",
        model=last.model,
    )
    return _entry(number, record, is_loss=True)
