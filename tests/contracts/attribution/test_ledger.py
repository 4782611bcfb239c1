"""The ledger closes: every nanosecond of an engine's wall clock is on one line, and no line is a remainder."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.gpu_time.attribution import attribute
from algorithms.gpu_time.ledger import LedgerLines, ledger_lines
from algorithms.gpu_time.ledger_clock import Interval, LedgerClock, Lifecycle
from algorithms.gpu_time.step_model import StepRow
from contracts.recording.records import StepRecord
from tests.contracts.attribution.engines import ENGINE, patient, random_rows

LIFECYCLES: dict[str, Lifecycle] = {"load": "load", "warmup": "warmup", "sleep": "sleep"}


def record(stretch: Interval, sequence: int = 0, rows: list[StepRow] | None = None, engine: str = "e1") -> StepRecord:
    """Create the record an engine host writes for a stretch."""
    rows = rows or []
    return StepRecord(
        engine=engine,
        sequence=sequence,
        started_at_ns=stretch.started_at_ns,
        busy_ns=stretch.busy_ns,
        gap_ns=stretch.gap_ns,
        kind=stretch.kind,
        gap_cause=stretch.gap_cause,
        scheduled=[row.scheduled for row in rows],
        recompute=[row.recompute for row in rows],
        aborted=[row.aborted for row in rows],
        gpu_ns=attribute(ENGINE, stretch.busy_ns, rows).parts_ns,
    )


def lines_of(records: list[StepRecord], start_ns: int, end_ns: int) -> LedgerLines:
    return ledger_lines(records, start_ns, end_ns, engines=["e1"])["e1"]


def test_a_life_of_an_engine_is_on_the_lines() -> None:
    clock = LedgerClock(0)
    clock.begin(0, "load")
    clock.begin(100, "warmup")
    clock.queue(120, runnable=False)
    clock.end(150)
    clock.queue(200, runnable=True)  # idle from 150 to 200
    stretches = clock.step(210, 40)  # 10 until the host had launched it
    stretches += clock.step(255, 45)  # 5 between steps
    clock.queue(300, runnable=False)
    clock.begin(320, "sleep")
    stretches += clock.flush(400)
    assert stretches == [
        Interval("load", 0, 100),
        Interval("warmup", 100, 50),
        Interval("idle", 150, 50),
        Interval("step", 210, 40, 10, "host"),
        Interval("step", 255, 45, 5, "host"),
        Interval("idle", 300, 20),
        Interval("sleep", 320, 80),
    ]
    rows = [StepRow(10, 0), StepRow(1, 5)]
    lines = lines_of([record(one, rows=rows if one.kind == "step" else []) for one in stretches], 0, 400)
    assert lines == LedgerLines(
        wall_ns=400, attributed_ns=85, host_gap_ns=15, idle_ns=70, load_ns=100, warmup_ns=50, sleep_ns=80
    )
    assert lines.unexplained_ns == 0


def test_time_before_the_queue_was_reported_is_unexplained_and_not_idle() -> None:
    clock = LedgerClock(0)
    clock.queue(60, runnable=False)
    lines = lines_of([record(one) for one in clock.flush(100)], 0, 100)
    assert (lines.idle_ns, lines.unexplained_ns) == (40, 60)
    assert [one.gap_cause for one in clock.flush(100)] == []


def test_an_unknown_gap_beside_a_host_gap_keeps_its_own_cause() -> None:
    clock = LedgerClock(0)
    clock.queue(60, runnable=True)
    lines = lines_of([record(one, rows=[StepRow(1, 1)]) for one in clock.step(90, 10)], 0, 100)
    assert (lines.host_gap_ns, lines.attributed_ns, lines.idle_ns, lines.unexplained_ns) == (30, 10, 0, 60)


def test_a_hole_in_the_records_is_unexplained_and_not_idle() -> None:
    clock = LedgerClock(0)
    clock.queue(0, runnable=True)
    records = [record(clock.step(at, 10)[-1], rows=[StepRow(1, 1)]) for at in (0, 10, 20, 30)]
    lines = lines_of([*records[:1], *records[2:]], 0, 40)
    assert (lines.attributed_ns, lines.idle_ns, lines.unexplained_ns) == (30, 0, 10)


def test_a_request_that_came_and_went_before_any_step_leaves_a_host_gap() -> None:
    clock = LedgerClock(0)
    clock.queue(0, runnable=False)
    clock.queue(10, runnable=True)
    clock.queue(25, runnable=False)
    lines = lines_of([record(one) for one in clock.flush(30)], 0, 30)
    assert (lines.idle_ns, lines.host_gap_ns, lines.unexplained_ns) == (15, 15, 0)


def test_a_step_told_late_is_placed_where_it_was() -> None:
    """Events of the GPU are read after the queue has changed again."""
    clock = LedgerClock(0)
    clock.queue(0, runnable=True)
    clock.queue(50, runnable=False)
    clock.queue(70, runnable=True)
    stretches = clock.step(5, 45) + clock.step(80, 10)
    assert stretches == [
        Interval("step", 5, 45, 5, "host"),
        Interval("idle", 50, 20),
        Interval("step", 80, 10, 10, "host"),
    ]


def test_clocks_that_disagree_do_not_count_an_instant_twice() -> None:
    clock = LedgerClock(0)
    clock.queue(0, runnable=True)
    stretches = clock.step(0, 100) + clock.step(97, 50)  # said to begin 3 before the first ended
    assert stretches[-1] == Interval("step", 100, 50)


def test_a_negative_step_is_refused() -> None:
    with pytest.raises(ValueError, match="busy for -1 ns"):
        LedgerClock(0).step(0, -1)


def test_waste_has_lines_of_its_own() -> None:
    rows = [StepRow(1, 9), StepRow(10, 0, recompute=10), StepRow(1, 9, aborted=True)]
    parts = attribute(ENGINE, 1000, rows).parts_ns
    lines = lines_of([record(Interval("step", 0, 1000), rows=rows)], 0, 1000)
    assert (lines.attributed_ns, lines.recompute_ns, lines.wasted_ns) == tuple(parts)
    assert lines.busy_ns == 1000 and lines.unexplained_ns == 0


def test_busy_time_nobody_was_charged_for_has_a_line_of_its_own() -> None:
    lines = lines_of([record(Interval("step", 0, 1000))], 0, 1000)
    assert lines == LedgerLines(wall_ns=1000, unattributed_ns=1000)


def test_an_engine_without_a_record_is_unexplained() -> None:
    lines = ledger_lines([], 0, 60, engines=["gone"])["gone"]
    assert (lines.wall_ns, lines.unexplained_ns) == (60, 60)


def test_time_counted_twice_shows_below_zero() -> None:
    twice = [record(Interval("idle", 0, 60)), record(Interval("idle", 0, 60))]
    assert lines_of(twice, 0, 60).unexplained_ns == -60


def test_engines_are_kept_apart() -> None:
    found = ledger_lines(
        [record(Interval("idle", 0, 10)), record(Interval("load", 0, 10), engine="e2")], 0, 10, engines=["e1", "e2"]
    )
    assert (found["e1"].idle_ns, found["e2"].load_ns) == (10, 10)
    assert found["e1"].unexplained_ns == found["e2"].unexplained_ns == 0


def test_an_interval_cannot_end_before_it_begins() -> None:
    with pytest.raises(ValueError, match="cannot end"):
        ledger_lines([], 10, 9)


def simulate(source: random.Random, count: int) -> tuple[list[StepRecord], int, dict[str, int]]:
    """Run an engine through random times; return its records, when it ended, and what truly happened."""
    clock = LedgerClock(0)
    now, records = 0, list[StepRecord]()
    true = dict.fromkeys(("busy_ns", "host_gap_ns", "idle_ns", "load_ns", "warmup_ns", "sleep_ns"), 0)
    clock.queue(0, runnable=False)
    for _ in range(count):
        length = source.randrange(1, 1000)
        what = source.choice(("step", "step", "step", "host", "idle", "load", "warmup", "sleep"))
        if what == "step":
            clock.queue(now, runnable=True)
            rows = list(random_rows(source))[: source.randrange(1, 5)]
            for one in clock.step(now, length):
                records.append(record(one, len(records), rows if one.kind == "step" else []))
            true["busy_ns"] += length
        else:
            if what in LIFECYCLES:
                clock.begin(now, LIFECYCLES[what])
                clock.end(now + length)
            else:
                clock.queue(now, runnable=what == "host")
            true[f"{what}_gap_ns" if what == "host" else f"{what}_ns"] += length
        now += length
    records += [record(one) for one in clock.flush(now)]
    return records, now, true


@patient
@given(st.integers(0, 10**6), st.integers(0, 60))
def test_the_ledger_closes_on_any_timeline(seed: int, count: int) -> None:
    records, end_ns, true = simulate(random.Random(seed), count)
    lines = lines_of(records, 0, end_ns)
    assert lines.unexplained_ns == 0
    assert {name: getattr(lines, name) for name in true} == true


@patient
@given(st.integers(0, 10**6), st.integers(1, 40), st.lists(st.integers(0, 30_000), max_size=6))
def test_intervals_laid_end_to_end_sum_to_the_whole(seed: int, count: int, cuts: list[int]) -> None:
    records, end_ns, _ = simulate(random.Random(seed), count)
    edges = sorted({0, end_ns, *(cut for cut in cuts if cut < end_ns)})
    parts = [lines_of(records, begin, end) for begin, end in zip(edges, edges[1:], strict=False)]
    assert sum(parts, LedgerLines()) == lines_of(records, 0, end_ns)
    random.Random(seed).shuffle(records)
    assert lines_of(records, 0, end_ns) == sum(parts, LedgerLines())
