"""The GPU ledger: where every nanosecond of an engine's wall clock went, on lines that close.

Idle and host gap come from queue state (was anything runnable?), loading from lifecycle events; what no line
explains is a line of its own and is never put down to idleness. Times are nanoseconds of one engine; times its
ranks they are GPU time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from contracts.attribution import classify
from contracts.records import GapCause, StepKind, StepRecord
from contracts.step_model import StepRow


@dataclass(frozen=True, slots=True)
class LedgerLines:
    """One engine's wall time in an interval, by line, in ns.

    `attributed_ns` is what requests were charged, `recompute_ns` what a preemption made the engine do again,
    `wasted_ns` what aborted requests ran on, `unattributed_ns` busy time nobody was charged for (dummy batches,
    steps without a split). The rest is time in no step: `host_gap_ns` with something runnable, `idle_ns` with
    nothing, and three of lifecycle.
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

    @property
    def busy_ns(self) -> int:
        """Give the time in steps."""
        return self.attributed_ns + self.recompute_ns + self.wasted_ns + self.unattributed_ns

    @property
    def lifecycle_ns(self) -> int:
        """Give the time spent loading, warming up and asleep."""
        return self.load_ns + self.warmup_ns + self.sleep_ns

    @property
    def unexplained_ns(self) -> int:
        """Give wall time less all lines. Below 0 when something was counted twice: as worth knowing as a hole."""
        return self.wall_ns - self.busy_ns - self.lifecycle_ns - self.host_gap_ns - self.idle_ns

    def __add__(self, other: "LedgerLines") -> "LedgerLines":
        """Add lines of another interval or engine."""
        return LedgerLines(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(LedgerLines)))


def ledger_lines(
    records: Iterable[StepRecord], start_ns: int, end_ns: int, *, engines: Iterable[str] = ()
) -> dict[str, LedgerLines]:
    """Give each engine's lines for the interval from `start_ns` to `end_ns` (exclusive), in any order of records.

    A record's gap lies directly before its stretch. What crosses an end of the interval is counted for the part
    inside, so that intervals laid end to end sum to the whole, to the nanosecond. An engine named in `engines` that
    has no record is unexplained for the whole interval. Raises ValueError when the interval ends before it begins.
    """
    if end_ns < start_ns:
        raise ValueError(f"an interval cannot end ({end_ns}) before it begins ({start_ns})")
    sums: defaultdict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for engine in engines:
        sums[engine]["wall_ns"] = end_ns - start_ns
    for record in records:
        lines = sums[record.engine]
        lines["wall_ns"] = end_ns - start_ns
        for line, amount, begin, length in _entries(record):
            lines[line] += _inside(amount, begin, length, start_ns, end_ns)
    return {engine: LedgerLines(**lines) for engine, lines in sums.items()}


# A gap or stretch of another kind ("unknown", "lost") goes on no line, so it shows as unexplained.
_GAP_LINES: Final[Mapping[GapCause, str]] = {"host": "host_gap_ns", "idle": "idle_ns", "lifecycle": "load_ns"}
_STRETCH_LINES: Final[Mapping[StepKind, str]] = {
    "idle": "idle_ns",
    "load": "load_ns",
    "warmup": "warmup_ns",
    "sleep": "sleep_ns",
}


def _entries(record: StepRecord) -> Iterable[tuple[str, int, int, int]]:
    """Give (line, amount, begin, length) of what a record says: `amount` is spread evenly over the length."""
    gap_line = _GAP_LINES.get(record.gap_cause)
    if gap_line and record.gap_ns:
        yield gap_line, record.gap_ns, record.started_at_ns - record.gap_ns, record.gap_ns
    begin, length = record.started_at_ns, record.busy_ns
    if record.kind == "step":
        for line, amount in _step_amounts(record).items():
            yield line, amount, begin, length
    elif record.kind in _STRETCH_LINES:
        yield _STRETCH_LINES[record.kind], length, begin, length


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
    amounts["unattributed_ns"] = record.busy_ns - sum(amounts.values())
    return amounts


def _at(column: list[int] | list[bool], place: int) -> int:
    """Read a column of a step record, which is empty where nothing of its kind happened."""
    return column[place] if place < len(column) else 0


def _inside(amount: int, begin: int, length: int, start_ns: int, end_ns: int) -> int:
    """Give what of an amount spread over [begin, begin + length) lies in [start, end).

    As the difference of two running totals, each rounded down: neighbours then sum to the whole.
    """
    first = min(max(start_ns - begin, 0), length)
    last = min(max(end_ns - begin, 0), length)
    if last <= first:
        return 0
    return amount * last // length - amount * first // length
