"""The GPU ledger: divides an engine's wall time into lines that add up to the nanosecond.

Idle time and host gaps are derived from the queue's state (was any request runnable?), loading from lifecycle events.
Unexplained time is a line of its own and never counted as idle. Times are those of one engine in nanoseconds;
multiplied by its ranks they are GPU time.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from algorithms.gpu_time.attribution import classify
from algorithms.gpu_time.step_model import StepRow
from contracts.recording.records import GapCause, StepKind, StepRecord


@dataclass(frozen=True, slots=True)
class LedgerLines:
    """One engine's wall time in an interval, by line, in nanoseconds.

    `attributed_ns` was charged to requests; `recompute_ns` repeated work after preemptions; `wasted_ns` served aborted
    requests; `unattributed_ns` is busy time charged to no request (dummy batches, steps without a split). The rest is
    outside of steps: `host_gap_ns` with a runnable request, `idle_ns` without one, and four of the lifecycle; `dead_ns`
    is the time between the death of an engine's process and its restart.
    """

    wall_ns: int = 0
    attributed_ns: int = 0
    recompute_ns: int = 0
    wasted_ns: int = 0
    unattributed_ns: int = 0
    host_gap_ns: int = 0
    idle_ns: int = 0
    load_ns: int = 0
    warmup_ns: int = 0
    sleep_ns: int = 0
    dead_ns: int = 0

    @property
    def busy_ns(self) -> int:
        """Return the time in steps."""
        return self.attributed_ns + self.recompute_ns + self.wasted_ns + self.unattributed_ns

    @property
    def lifecycle_ns(self) -> int:
        """Return the time spent loading, warming up, asleep and dead."""
        return self.load_ns + self.warmup_ns + self.sleep_ns + self.dead_ns

    @property
    def unexplained_ns(self) -> int:
        """Return the wall time minus all lines. Negative if time was counted twice."""
        return self.wall_ns - self.busy_ns - self.lifecycle_ns - self.host_gap_ns - self.idle_ns

    def __add__(self, other: "LedgerLines") -> "LedgerLines":
        """Return the sum with the lines of another interval or engine."""
        return LedgerLines(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(LedgerLines)))


@dataclass(frozen=True, slots=True)
class StepTime:
    """The times of a step record: a gap directly before `started_at_ns`, then `busy_ns` of `kind`.

    For steps, `attributed_ns`, `recompute_ns` and `wasted_ns` are parts of `busy_ns`, as in `LedgerLines`.
    """

    engine: str
    kind: StepKind
    gap_cause: GapCause
    started_at_ns: int
    busy_ns: int
    gap_ns: int
    attributed_ns: int = 0
    recompute_ns: int = 0
    wasted_ns: int = 0

    @property
    def begins_at_ns(self) -> int:
        """Return the beginning of its gap."""
        return self.started_at_ns - self.gap_ns

    @property
    def ends_at_ns(self) -> int:
        """Return the end of its busy time."""
        return self.started_at_ns + self.busy_ns


def ledger_lines(
    records: Iterable[StepRecord], start_ns: int, end_ns: int, *, engines: Iterable[str] = ()
) -> dict[str, LedgerLines]:
    """Return each engine's lines for the interval from `start_ns` to `end_ns` (exclusive). Records may be in any order.

    Records that cross a bound count with the part inside, so that adjacent intervals add up exactly. An engine in
    `engines` without records is unexplained for the whole interval. Raises ValueError if the interval ends before it
    begins.
    """
    if end_ns < start_ns:
        raise ValueError(f"an interval cannot end ({end_ns}) before it begins ({start_ns})")
    times = [step_time(record) for record in records]
    found = ledger_intervals(times, (start_ns, end_ns))
    known = {*engines, *(time.engine for time in times)}
    nothing = LedgerLines(wall_ns=end_ns - start_ns)
    return {engine: found[engine][0] if engine in found else nothing for engine in known}


def ledger_intervals(times: Iterable[StepTime], bounds_ns: Sequence[int]) -> dict[str, list[LedgerLines]]:
    """Return each engine's lines for every interval between ascending bounds, as `ledger_lines` does for one."""
    walls = [end - start for start, end in zip(bounds_ns, bounds_ns[1:], strict=False)]
    sums: dict[str, list[dict[str, int]]] = {}
    for time in times:
        lines = sums.get(time.engine)
        if lines is None:
            lines = sums[time.engine] = [{"wall_ns": wall} for wall in walls]
        for line, amount, begin, length in _entries(time):
            first = max(bisect_right(bounds_ns, begin) - 1, 0)
            for place in range(first, len(walls)):
                start_ns = bounds_ns[place]
                if start_ns >= begin + length:
                    break
                inside = _inside(amount, begin, length, start_ns, bounds_ns[place + 1])
                lines[place][line] = lines[place].get(line, 0) + inside
    return {engine: [LedgerLines(**one) for one in lines] for engine, lines in sums.items()}


def step_time(record: StepRecord) -> StepTime:
    """Return a step record's times and amounts, as a ledger counts them."""
    amounts = _step_amounts(record) if record.kind == "step" else {}
    return StepTime(
        record.engine, record.kind, record.gap_cause, record.started_at_ns, record.busy_ns, record.gap_ns, **amounts
    )


# Gaps and records of other kinds ("unknown", "lost") are on no line, and so are unexplained.
_GAP_LINES: Final[Mapping[GapCause, str]] = {"host": "host_gap_ns", "idle": "idle_ns", "lifecycle": "load_ns"}
_STRETCH_LINES: Final[Mapping[StepKind, str]] = {
    "idle": "idle_ns",
    "load": "load_ns",
    "warmup": "warmup_ns",
    "sleep": "sleep_ns",
    "dead": "dead_ns",
}


def _entries(time: StepTime) -> Iterable[tuple[str, int, int, int]]:
    """Yield (line, amount, begin, length) for a record: `amount` is spread evenly over the length."""
    gap_line = _GAP_LINES.get(time.gap_cause)
    if gap_line and time.gap_ns:
        yield gap_line, time.gap_ns, time.begins_at_ns, time.gap_ns
    begin, length = time.started_at_ns, time.busy_ns
    if time.kind == "step":
        yield "attributed_ns", time.attributed_ns, begin, length
        yield "recompute_ns", time.recompute_ns, begin, length
        yield "wasted_ns", time.wasted_ns, begin, length
        yield "unattributed_ns", length - time.attributed_ns - time.recompute_ns - time.wasted_ns, begin, length
    elif time.kind in _STRETCH_LINES:
        yield _STRETCH_LINES[time.kind], length, begin, length


def _step_amounts(record: StepRecord) -> dict[str, int]:
    amounts = {"attributed_ns": 0, "recompute_ns": 0, "wasted_ns": 0}
    for place, part_ns in enumerate(record.gpu_ns):
        row = StepRow(
            scheduled=_at(record.scheduled, place),
            context=0,
            recompute=_at(record.recompute, place),
            aborted=bool(_at(record.aborted, place)),
        )
        time = classify(row, part_ns)
        amounts["attributed_ns"] += time.useful_ns
        amounts["recompute_ns"] += time.recompute_ns
        amounts["wasted_ns"] += time.wasted_ns
    return amounts


def _at(column: list[int] | list[bool], place: int) -> int:
    """Return a row's value in a column of a step record; columns without values are empty."""
    return column[place] if place < len(column) else 0


def _inside(amount: int, begin: int, length: int, start_ns: int, end_ns: int) -> int:
    """Return the part of an amount, spread over [begin, begin + length), that lies in [start, end).

    Computed as the difference of two cumulative sums rounded down, so that adjacent intervals add up exactly.
    """
    first = min(max(start_ns - begin, 0), length)
    last = min(max(end_ns - begin, 0), length)
    if last <= first:
        return 0
    return amount * last // length - amount * first // length
