"""Measures the embedder: each batch a step record, its time split by tokens, and the idleness between."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from contracts.attribution import split_exactly
from contracts.ledger_clock import LedgerClock, Lifecycle, Stretch
from contracts.records import StepRecord
from contracts.step_model import ENCODE

METHOD: Final = "tokens/1"  # an encoder's time is all but linear in its tokens at these lengths
_FLUSH_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class EmbedRow:
    """One request's part of a batch."""

    request_id: bytes
    tenant: str
    tokens: int


@dataclass(slots=True)
class EmbedMeter:
    """The embedder's books, kept in its thread."""

    engine: str
    model: str
    replica: str
    sequence: int = 0
    _offset_ns: int = field(default_factory=lambda: time.time_ns() - time.monotonic_ns())
    _clock: LedgerClock = field(default_factory=lambda: LedgerClock(time.monotonic_ns()))
    _told_ns: int = field(default_factory=time.monotonic_ns)
    _records: list[StepRecord] = field(default_factory=list)

    def lifecycle(self, phase: Lifecycle | None) -> None:
        """Note that loading or warming up begins, or with `None` that it ends."""
        if phase is None:
            self._clock.end(time.monotonic_ns())
        else:
            self._clock.begin(time.monotonic_ns(), phase)

    def queue(self, at_ns: int, *, runnable: bool) -> None:
        """Note whether anything waits or runs from now on."""
        self._clock.queue(at_ns, runnable=runnable)

    def step(self, started_ns: int, busy_ns: int, rows: Sequence[EmbedRow], waiting: int) -> list[int]:
        """Record a batch. Gives each row's nanoseconds; they sum to the batch's."""
        parts = split_exactly(busy_ns, [float(row.tokens) for row in rows])
        *before, step = self._clock.step(started_ns, busy_ns)
        for stretch in before:
            self._append(stretch)
        self._told_ns = started_ns + busy_ns
        self.sequence += 1
        self._records.append(
            StepRecord(
                engine=self.engine,
                sequence=self.sequence,
                started_at_ns=step.started_at_ns + self._offset_ns,
                busy_ns=step.busy_ns,
                gap_ns=step.gap_ns,
                gap_cause=step.gap_cause,
                model=self.model,
                replica=self.replica,
                devices=["cpu"],
                running=len(rows),
                waiting=waiting,
                method=METHOD,
                request_ids=[row.request_id for row in rows],
                tenants=[row.tenant for row in rows],
                scheduled=[row.tokens for row in rows],
                context=[0] * len(rows),
                phases=[ENCODE] * len(rows),
                gpu_ns=parts,
            )
        )
        return parts

    def take(self, *, idle: bool) -> list[StepRecord]:
        """Give the records since the last call; with `idle` those of idleness too, once a second."""
        now = time.monotonic_ns()
        if idle and now - self._told_ns >= _FLUSH_NS:
            for stretch in self._clock.flush(now):
                self._append(stretch)
            self._told_ns = now
        taken, self._records = self._records, []
        return taken

    def _append(self, stretch: Stretch) -> None:
        self.sequence += 1
        self._records.append(
            StepRecord(
                engine=self.engine,
                sequence=self.sequence,
                started_at_ns=stretch.started_at_ns + self._offset_ns,
                busy_ns=stretch.busy_ns,
                gap_ns=stretch.gap_ns,
                gap_cause=stretch.gap_cause,
                kind=stretch.kind,
                model=self.model,
                replica=self.replica,
                devices=["cpu"],
            )
        )
