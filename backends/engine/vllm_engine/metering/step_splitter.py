"""Turns measured steps into step records: joins the ranks, splits each step's time among requests, reports
lost steps.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from algorithms.gpu_time.attribution import METHOD, attribute
from algorithms.gpu_time.step_fitter import StepFitter
from algorithms.gpu_time.step_model import ENCODE, StepRow
from backends.engine.step_book import QueueFacts, StepBook
from backends.engine.vllm_engine.metering.frames import MeasuredStep, MeterFrame
from backends.engine.vllm_engine.metering.gpu_clock import DRAINED_NS
from backends.engine.vllm_engine.metering.refits import Refits, other_process
from backends.engine.vllm_engine.metering.request_book import MeteredRequest, RequestBook
from contracts.recording.records import StepRecord

WARM_UP_ID: Final = bytes(15) + b"\x01"  # the host's own request before it serves: its steps are warm-up
_NOBODY: Final = bytes(16)  # the id in a row whose sequence is unknown
_REFIT_STEPS: Final = 4096  # a fit takes tens of milliseconds of a core; after drift one is made sooner
_RANKS_WITHIN: Final = 64  # maximum number of steps that a rank may be behind; then a record is written without it


@dataclass(slots=True)
class _Lost:
    steps: int = 0
    rows: int = 0


@dataclass(slots=True)
class StepSplitter:
    """Takes the frames of all ranks, each rank's in order. `facts` is the engine's state for the records of the next
    steps.
    """

    book: StepBook
    requests: RequestBook
    ranks: int = 1
    devices: tuple[str, ...] = ()
    block_size: int = 16
    fitter: StepFitter = field(default_factory=lambda: StepFitter(refit_steps=_REFIT_STEPS))
    make_executor: Callable[[], Executor] = other_process  # runs the fits of the step model
    on_step: Callable[[int, Sequence[StepRow]], None] | None = None  # called with each record's number and rows
    facts: QueueFacts | None = None
    busy_ns: int = 0
    steps: int = 0
    recorded: int = 0  # number of the last recorded step
    rank_skew_ns: int | None = None  # of the last step
    lost: _Lost = field(default_factory=_Lost)
    _queue: deque[MeasuredStep] = field(default_factory=deque)
    _others: dict[int, list[int]] = field(default_factory=dict)  # other ranks' busy times, by step
    _in_flight: dict[int, int] = field(default_factory=dict)  # by rank
    _ended_ns: int = 0
    _told: MeasuredStep | None = None  # the last step that arrived, with its rows
    _refits: Refits = field(init=False)

    def __post_init__(self) -> None:
        self._refits = Refits(self.fitter, self.make_executor)

    @property
    def is_quiet(self) -> bool:
        """Return whether no step is in flight on any rank, or measured and not recorded."""
        return not self._queue and not any(self._in_flight.values())

    @property
    def backlog(self) -> int:
        """Return the number of steps that have arrived and are not recorded."""
        return len(self._queue)

    def feed(self, frame: MeterFrame) -> None:
        """Queue the steps of a worker's frame; `record` turns them into records."""
        self._in_flight[frame.rank] = frame.in_flight
        if frame.rank != 0:
            for step in chain.from_iterable(map(MeasuredStep.each, frame.steps)):
                if step.number > self.recorded:
                    self._others.setdefault(step.number, []).append(step.busy_ns)
        else:
            for begun in frame.begun:
                self.requests.note_begun(begun)
            steps = chain.from_iterable(map(MeasuredStep.each, frame.steps))
            self._queue.extend(step for step in map(self._whole, steps) if step is not None)
        for ended in frame.ended:
            self.requests.note_ended(ended, self.recorded)

    def _whole(self, step: MeasuredStep) -> MeasuredStep | None:
        """Return a step with its rows; `None` if it refers to the rows of a step that was lost."""
        told = self._told
        if step.again:
            if told is None or told.number != step.number - 1:
                return None
            step = MeasuredStep(
                number=step.number,
                started_ns=step.started_ns,
                busy_ns=step.busy_ns,
                forward_ns=step.forward_ns,
                keys=told.keys,
                scheduled=told.scheduled,
                context=[start + 1 for start in told.context],
                phases=told.phases,
                shared=told.shared,
            )
        self._told = step
        return step

    def close(self) -> None:
        """Record the remaining steps, even without the other ranks' measurements, and stop fitting."""
        while self._queue:
            self._record(self._queue.popleft())
        self._refits.close()

    def record(self, limit: int | None = None) -> None:
        """Record complete steps, at most `limit`. A step waits for all ranks until it is 64 steps behind."""
        while self._queue and limit != 0:
            number = self._queue[0].number
            is_complete = len(self._others.get(number, ())) >= self.ranks - 1
            if not is_complete and self._queue[-1].number - number < _RANKS_WITHIN:
                return
            self._record(self._queue.popleft())
            limit = None if limit is None else limit - 1

    def _record(self, step: MeasuredStep) -> None:
        missing = step.number - self.recorded - 1
        if missing > 0:
            self._record_loss(missing, step)
        self.recorded = step.number
        self._ended_ns = step.started_ns + step.busy_ns
        others = self._others.pop(step.number, [])
        requests = self.requests.of_keys(step.keys)
        if not _is_warm_up(requests):
            self._write(step, requests, others)
        self.requests.note_recorded(step.number)

    def _record_loss(self, missing: int, step: MeasuredStep) -> None:
        """Write a record of kind "lost" for missing steps, so that their time does not count as idle."""
        self.lost.steps += missing
        began_ns = self._ended_ns
        for number in range(self.recorded + 1, step.number):
            self._others.pop(number, None)
        if not self.recorded or step.started_ns <= began_ns:
            return
        book = self.book
        stretch = book.place(began_ns, step.started_ns - began_ns)
        book.sequence += missing - 1
        book.write(
            StepRecord(
                engine=book.engine,
                sequence=book.next_sequence(),
                started_at_ns=book.unix_ns(stretch.started_at_ns),
                busy_ns=stretch.busy_ns,
                kind="lost",
                model=book.model,
                replica=book.replica,
                devices=self._devices(),
            )
        )

    def _write(self, step: MeasuredStep, requests: Sequence[MeteredRequest | None], others: list[int]) -> None:
        book, facts = self.book, self.facts
        used = facts.kv_blocks_used if facts is not None else None
        total = facts.kv_blocks_total if facts is not None else None
        rows = _rows(step, requests)
        place = book.place(step.started_ns, step.busy_ns, kv_blocks_used=used, kv_blocks_total=total)
        is_dry = place.gap_ns > DRAINED_NS
        split = attribute(self.fitter.model, step.busy_ns, rows, is_dry=is_dry)
        held_ns = step.busy_ns + (place.gap_ns if place.gap_cause == "host" else 0)
        size, confidence = self.block_size, split.confidence
        for request, row, part_ns in zip(requests, rows, split.parts_ns, strict=True):
            if request is None:
                self.lost.rows += 1
            else:
                blocks = -(-(row.context + row.scheduled) // size) if row.phase != ENCODE else 0
                request.add(row, part_ns, confidence, blocks * held_ns)
        self._learn(step, rows, is_dry=is_dry)
        if self.on_step is not None:
            self.on_step(book.sequence + 1, rows)
        aborted = [row.aborted for row in rows]
        skew = max(step.busy_ns, *others) - min(step.busy_ns, *others) if len(others) == self.ranks - 1 > 0 else None
        self.rank_skew_ns = skew
        self.busy_ns += step.busy_ns
        self.steps += 1
        book.write(
            StepRecord(
                engine=book.engine,
                sequence=book.next_sequence(),
                started_at_ns=book.unix_ns(place.started_at_ns),
                busy_ns=place.busy_ns,
                gap_ns=place.gap_ns,
                gap_cause=place.gap_cause,
                forward_ns=step.forward_ns,
                rank_skew_ns=skew,
                model=book.model,
                replica=book.replica,
                devices=self._devices(),
                ranks=self.ranks,
                running=len(rows),
                waiting=facts.waiting if facts is not None else None,
                kv_blocks_used=used,
                kv_blocks_total=total,
                method=METHOD if rows else "",
                fit_version=split.fit_version if rows else "",
                confidence=split.confidence if rows else None,
                request_ids=[_NOBODY if one is None else one.payer_id for one in requests],
                tenants=["" if one is None else one.tenant for one in requests],
                scheduled=step.scheduled,
                context=step.context,
                cached=step.cached,
                phases=step.phases,
                recompute=step.recompute,
                drafted=step.drafted,
                accepted=step.accepted,
                aborted=aborted if any(aborted) else [],
                gpu_ns=split.parts_ns,
            )
        )

    def _learn(self, step: MeasuredStep, rows: Sequence[StepRow], *, is_dry: bool) -> None:
        """Pass a step to the fitter, unless an encoder ran in it: that has other weights."""
        if not rows or ENCODE in step.phases:
            return
        self.fitter.observe(step.busy_ns, rows, is_dry=is_dry)
        self._refits.look()

    def _devices(self) -> list[str]:
        return list(self.devices) or [self.book.device]


def _is_warm_up(requests: Sequence[MeteredRequest | None]) -> bool:
    return bool(requests) and all(one is not None and one.request_id == WARM_UP_ID for one in requests)


def _rows(step: MeasuredStep, requests: Sequence[MeteredRequest | None]) -> list[StepRow]:
    count = len(step.keys)
    zeros = [0] * count
    aborted = [
        bool(discarded) or (request is not None and request.is_over)
        for discarded, request in zip(step.discarded or zeros, requests, strict=True)
    ]
    return list(
        map(
            StepRow,
            step.scheduled,
            step.context,
            step.logits or [1] * count,
            step.cached or zeros,
            step.phases or zeros,
            step.recompute or zeros,
            step.drafted or zeros,
            step.accepted or zeros,
            aborted,
            step.shared or zeros,
        )
    )
