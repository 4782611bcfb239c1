"""Measures each step, and splits its time over the requests, as step records without gaps."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import torch

from algorithms.gpu_time.attribution import METHOD, attribute
from algorithms.gpu_time.ledger_clock import Lifecycle
from algorithms.gpu_time.step_fit import fit
from algorithms.gpu_time.step_fitter import StepFitter
from algorithms.gpu_time.step_model import DECODE, PREFILL, StepModel, StepRow
from backends.engine.step_book import QueueFacts, StepBook
from backends.engine.torch_engine.sequence import Row
from contracts.recording.records import StepRecord

_TOGETHER: Final = 64
_REFIT_STEPS: Final = 4096  # a fit takes as long as ten steps; after drift it is earlier
_SETTLE_NS: Final = 100_000_000


@dataclass(frozen=True, slots=True)
class _Measured:
    """A measured step whose time is not split yet. Its rows' states are recorded at once, because sequences
    continue.
    """

    started_ns: int
    busy_ns: int
    rows: Sequence[Row]
    composition: list[StepRow]
    facts: QueueFacts


@dataclass(slots=True)
class _Timer:
    """Measures one step: by CUDA events if the device has them, else by the host's clock."""

    device: torch.device
    now_ns: Callable[[], int]
    started_ns: int = 0
    _events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None

    def begin(self) -> None:
        self.started_ns = self.now_ns()
        if self.device.type == "cuda":
            if self._events is None:
                self._events = (_event(), _event())
            self._events[0].record()

    def end(self) -> int:
        """Return the busy nanoseconds. The step's tokens are already on the host, so its CUDA events have completed."""
        if self._events is None:
            return self.now_ns() - self.started_ns
        self._events[1].record()
        self._events[1].synchronize()
        return int(self._events[0].elapsed_time(self._events[1]) * 1e6)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped


@dataclass(slots=True)
class StepMeter:
    """One engine's meter, used by the stepping thread.

    `now_ns` is the engine's monotonic clock, `wall_offset_ns` converts it to Unix time. Unless `enabled`, nothing is
    measured, split or recorded.
    """

    engine: str
    model: str
    replica: str
    device: torch.device
    now_ns: Callable[[], int]
    wall_offset_ns: int
    enabled: bool = True
    fitter: StepFitter = field(default_factory=lambda: StepFitter(refit_steps=_REFIT_STEPS))
    busy_ns: int = 0
    _book: StepBook = field(init=False)
    _timer: _Timer = field(init=False)
    _measured: list[_Measured] = field(default_factory=list)
    _refits: ThreadPoolExecutor | None = None
    _refit: Future[StepModel] | None = None

    def __post_init__(self) -> None:
        self._book = StepBook(self.engine, self.model, self.replica, str(self.device), self.now_ns, self.wall_offset_ns)
        self._timer = _Timer(self.device, self.now_ns)

    def lifecycle(self, phase: Lifecycle | None) -> None:
        """Record the start of loading or warming up; with `None`, its end."""
        self._book.lifecycle(phase)

    def queue(self, at_ns: int, *, runnable: bool) -> None:
        """Record whether anything could run from `at_ns` on."""
        if self.enabled:
            self._book.queue(at_ns, runnable=runnable)

    def begin(self) -> None:
        """Start measuring a step."""
        if self.enabled:
            self._timer.begin()

    def end(self, rows: Sequence[Row], facts: QueueFacts) -> None:
        """Stop measuring the step, and record its rows and the engine's state."""
        if not self.enabled:
            return
        busy_ns = self._timer.end()
        self.busy_ns += busy_ns
        self._measured.append(_Measured(self._timer.started_ns, busy_ns, rows, list(map(_step_row, rows)), facts))
        if len(self._measured) >= _TOGETHER:
            self.settle()

    def settle(self) -> None:
        """Split and record all steps measured so far; call it before a request's account is reported.

        Several at once, because this code runs three times as long between two forward passes, with cold CPU caches.
        """
        measured, self._measured = self._measured, []
        for one in measured:
            self._record(one)

    def _record(self, measured: _Measured) -> None:
        rows, composition, facts = measured.rows, measured.composition, measured.facts
        split = attribute(self.fitter.model, measured.busy_ns, composition)
        for row, part, step_row in zip(rows, split.parts_ns, composition, strict=True):
            row.sequence.request.time.add(step_row, part, split.confidence)
        self.fitter.observe(measured.busy_ns, composition)
        self._improve()
        book = self._book
        step = book.place(
            measured.started_ns,
            measured.busy_ns,
            kv_blocks_used=facts.kv_blocks_used,
            kv_blocks_total=facts.kv_blocks_total,
        )
        cached = [one.cached for one in composition]
        recompute = [one.recompute for one in composition]
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
                running=facts.running,
                waiting=facts.waiting,
                kv_blocks_used=facts.kv_blocks_used,
                kv_blocks_total=facts.kv_blocks_total,
                method=METHOD,
                fit_version=split.fit_version,
                confidence=split.confidence,
                request_ids=[row.sequence.request.submit.payer_id for row in rows],
                tenants=[row.sequence.request.submit.tenant for row in rows],
                scheduled=[one.scheduled for one in composition],
                context=[one.context for one in composition],
                cached=cached if any(cached) else [],
                phases=[one.phase for one in composition],
                recompute=recompute if any(recompute) else [],
                gpu_ns=split.parts_ns,
            )
        )

    def take(self, *, idle: bool, facts: QueueFacts) -> list[StepRecord]:
        """Return the records since the last call; those of the last tenth of a second may be returned by a later one.

        `idle`: no step is in progress and nothing could run.
        """
        now = self.now_ns()
        if idle or (self._measured and now - self._measured[0].started_ns >= _SETTLE_NS):
            self.settle()
        if self.enabled and idle:
            self._book.write_idle_time(kv_blocks_used=facts.kv_blocks_used, kv_blocks_total=facts.kv_blocks_total)
        return self._book.take()

    def close(self) -> None:
        """Record what was measured, and stop the fitting thread."""
        self.settle()
        if self.enabled:
            self._book.close()
        if self._refits is not None:
            self._refits.shutdown(wait=True, cancel_futures=True)

    def _improve(self) -> None:
        """Fit the step model in a thread: a fit takes tens of milliseconds, a step perhaps ten."""
        if self._refit is not None:
            if self._refit.done():
                self.fitter.adopt(self._refit.result())
                self._refit = None
        elif self.fitter.is_due:
            if self._refits is None:
                self._refits = ThreadPoolExecutor(1, thread_name_prefix="step-fit")
            samples, prior, number = self.fitter.samples(), self.fitter.prior, self.fitter.next_number
            self._refit = self._refits.submit(fit, samples, prior, number=number)


def _step_row(row: Row) -> StepRow:
    start, cached = row.start, row.sequence.cached
    return StepRow(
        row.count,
        start,
        int(row.samples),
        cached if start == cached else 0,
        DECODE if row.is_decode else PREFILL,
        row.recompute,
    )
