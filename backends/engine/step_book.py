"""Writes one engine's step records: times, numbers without gaps, and idle time at growing intervals.

What a step contains, and how its time is split, depends on the engine; its place on the engine's timeline, and the time
between steps, are recorded here for every engine.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from algorithms.gpu_time.ledger_clock import FIRST_IDLE_NS, LONGEST_IDLE_NS, Interval, LedgerClock, Lifecycle
from contracts.recording.records import StepRecord


def _wall_offset_ns() -> int:
    return time.time_ns() - time.monotonic_ns()


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The state of the engine's queue and KV cache for a step record."""

    running: int
    waiting: int
    kv_blocks_used: int
    kv_blocks_total: int


@dataclass(slots=True)
class StepBook:
    """Builds records in the stepping thread. `wall_offset_ns` converts the monotonic `now_ns` to Unix time."""

    engine: str
    model: str
    replica: str
    device: str
    now_ns: Callable[[], int] = time.monotonic_ns
    wall_offset_ns: int = field(default_factory=_wall_offset_ns)
    sequence: int = 0
    dead_since_ns: int | None = None  # when the engine that this one replaces died
    _clock: LedgerClock = field(init=False)
    _told_ns: int = field(init=False)
    _idle_interval_ns: int = FIRST_IDLE_NS
    _records: list[StepRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._told_ns = self.now_ns()
        dead_since_ns = self.dead_since_ns
        self._clock = LedgerClock(self._told_ns if dead_since_ns is None else dead_since_ns)
        if dead_since_ns is not None:
            self._clock.begin(dead_since_ns, "dead")

    def lifecycle(self, phase: Lifecycle | None, at_ns: int | None = None) -> None:
        """Record the start of loading or warming up; with `None`, its end. `at_ns` is when; by default now."""
        at_ns = self.now_ns() if at_ns is None else at_ns
        if phase is None:
            self._clock.end(at_ns)
        else:
            self._clock.begin(at_ns, phase)

    def queue(self, at_ns: int, *, runnable: bool) -> None:
        """Record whether anything could run from `at_ns` on."""
        self._clock.queue(at_ns, runnable=runnable)

    def place(
        self, started_ns: int, busy_ns: int, *, kv_blocks_used: int | None = None, kv_blocks_total: int | None = None
    ) -> Interval:
        """Write the time before a step as records; return the step's interval: its start, and the gap before it."""
        *before, step = self._clock.step(started_ns, busy_ns)
        self._told_ns = started_ns + busy_ns
        self._idle_interval_ns = FIRST_IDLE_NS
        self._write_stretches(before, kv_blocks_used, kv_blocks_total)
        return step

    def unix_ns(self, monotonic_ns: int) -> int:
        """Convert the engine's monotonic time to Unix time."""
        return monotonic_ns + self.wall_offset_ns

    def next_sequence(self) -> int:
        """Return the sequence number for the next record."""
        self.sequence += 1
        return self.sequence

    def write(self, record: StepRecord) -> None:
        """Add the record of a step."""
        self._records.append(record)

    def write_idle_time(self, *, kv_blocks_used: int | None = None, kv_blocks_total: int | None = None) -> None:
        """Write ongoing idle time: after a second, then at doubling intervals of at most 30 seconds.

        No step may be in progress or unwritten. The next step writes the rest, so no nanosecond is lost.
        """
        now = self.now_ns()
        if now - self._told_ns >= self._idle_interval_ns:
            self._write_stretches(self._clock.flush(now), kv_blocks_used, kv_blocks_total)
            self._told_ns = now
            self._idle_interval_ns = min(2 * self._idle_interval_ns, LONGEST_IDLE_NS)

    def close(self) -> None:
        """Write the time up to now, since the engine ends. No step may be in progress or unwritten."""
        self._write_stretches(self._clock.flush(self.now_ns()), None, None)

    def take(self) -> list[StepRecord]:
        """Return the records since the last call."""
        taken, self._records = self._records, []
        return taken

    def _write_stretches(self, stretches: list[Interval], used: int | None, total: int | None) -> None:
        for stretch in stretches:
            self._records.append(
                StepRecord(
                    engine=self.engine,
                    sequence=self.next_sequence(),
                    started_at_ns=self.unix_ns(stretch.started_at_ns),
                    busy_ns=stretch.busy_ns,
                    gap_ns=stretch.gap_ns,
                    gap_cause=stretch.gap_cause,
                    kind=stretch.kind,
                    model=self.model,
                    replica=self.replica,
                    devices=[self.device],
                    kv_blocks_used=used,
                    kv_blocks_total=total,
                )
            )
