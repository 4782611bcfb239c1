"""Measures the embedder: one step record per batch, its time split by tokens, and idle time in between."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from algorithms.gpu_time.attribution import split_exactly
from algorithms.gpu_time.ledger_clock import Lifecycle
from algorithms.gpu_time.step_model import ENCODE
from backends.engine.step_book import StepBook
from contracts.recording.records import StepRecord

METHOD: Final = "tokens/1"  # at these lengths an encoder's time is nearly linear in its tokens


@dataclass(frozen=True, slots=True)
class EmbedRow:
    """One request's part of a batch."""

    request_id: bytes
    tenant: str
    tokens: int


class EmbedMeter:
    """The embedder's meter; used only by its thread."""

    def __init__(self, engine: str, model: str, replica: str) -> None:
        self._book = StepBook(engine, model, replica, device="cpu")

    def lifecycle(self, phase: Lifecycle | None) -> None:
        """Record the start of loading or warming up; with `None`, its end."""
        self._book.lifecycle(phase)

    def queue(self, at_ns: int, *, runnable: bool) -> None:
        """Record whether any request is queued or running from `at_ns` on."""
        self._book.queue(at_ns, runnable=runnable)

    def step(self, started_ns: int, busy_ns: int, rows: Sequence[EmbedRow], waiting: int) -> list[int]:
        """Record a batch. Return each row's nanoseconds; their sum is the batch's time."""
        parts = split_exactly(busy_ns, [float(row.tokens) for row in rows])
        book = self._book
        step = book.place(started_ns, busy_ns)
        book.write(
            StepRecord(
                engine=book.engine,
                sequence=book.next_sequence(),
                started_at_ns=book.unix_ns(step.started_at_ns),
                busy_ns=step.busy_ns,
                gap_ns=step.gap_ns,
                gap_cause=step.gap_cause,
                model=book.model,
                replica=book.replica,
                devices=[book.device],
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
        """Return the records since the last call; with `idle`, including idle time, at growing intervals."""
        if idle:
            self._book.write_idle_time()
        return self._book.take()

    def close(self) -> None:
        """Record the idle time up to now, since the embedder ends."""
        self._book.close()
