"""Idle time is written at growing intervals, and every nanosecond of it is written, whenever work comes."""

from hypothesis import given
from hypothesis import strategies as st

from algorithms.gpu_time.ledger import ledger_lines
from algorithms.gpu_time.ledger_clock import FIRST_IDLE_NS, LONGEST_IDLE_NS
from backends.engine.step_book import StepBook
from contracts.recording.records import StepRecord

SECOND = 1_000_000_000


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now_ns = 0


def book_of(clock: Clock) -> StepBook:
    book = StepBook("e/1", "m", "r", "g", now_ns=lambda: clock.now_ns, wall_offset_ns=0)
    book.queue(0, runnable=False)
    return book


def idle_for(book: StepBook, clock: Clock, seconds: int) -> list[int]:
    """Ask once a second as an engine's thread does; return after how many seconds something was written."""
    written = []
    for second in range(1, seconds + 1):
        clock.now_ns += SECOND
        count = len(book._records)
        book.write_idle_time()
        if len(book._records) > count:
            written.append(second)
    return written


def test_an_idle_engine_writes_after_a_second_and_then_at_doubling_intervals() -> None:
    clock = Clock()
    book = book_of(clock)
    assert idle_for(book, clock, 100) == [1, 3, 7, 15, 31, 61, 91]
    assert sum(record.busy_ns for record in book.take()) == 91 * SECOND


def test_the_first_interval_is_judged_below_at_and_above_its_bound() -> None:
    for waited, count in ((FIRST_IDLE_NS - 1, 0), (FIRST_IDLE_NS, 1), (FIRST_IDLE_NS + 1, 1)):
        clock = Clock()
        book = book_of(clock)
        clock.now_ns = waited
        book.write_idle_time()
        assert len(book.take()) == count, waited


def test_after_a_step_idle_time_is_written_after_a_second_again() -> None:
    clock = Clock()
    book = book_of(clock)
    idle_for(book, clock, 45)
    book.queue(clock.now_ns, runnable=True)
    book.place(clock.now_ns, SECOND // 2)
    clock.now_ns += SECOND // 2
    book.queue(clock.now_ns, runnable=False)
    assert idle_for(book, clock, 4) == [1, 3]


def test_an_engine_that_ends_writes_what_it_idled_last() -> None:
    clock = Clock()
    book = book_of(clock)
    idle_for(book, clock, 50)
    clock.now_ns += 17
    book.close()
    assert sum(record.busy_ns for record in book.take()) == 50 * SECOND + 17


@given(st.lists(st.tuples(st.integers(0, 100 * SECOND), st.integers(1, 3 * SECOND)), min_size=1, max_size=12))
def test_every_nanosecond_is_on_one_line_however_work_and_idle_time_alternate(turns: list[tuple[int, int]]) -> None:
    clock = Clock()
    book = book_of(clock)
    records: list[StepRecord] = []
    for idle_ns, busy_ns in turns:
        idle_for(book, clock, idle_ns // SECOND)
        clock.now_ns += idle_ns % SECOND
        book.queue(clock.now_ns, runnable=True)
        step = book.place(clock.now_ns, busy_ns)
        book.write(
            StepRecord(
                engine="e/1",
                sequence=book.next_sequence(),
                started_at_ns=step.started_at_ns,
                busy_ns=step.busy_ns,
                gap_ns=step.gap_ns,
            )
        )
        clock.now_ns += busy_ns
        book.queue(clock.now_ns, runnable=False)
        records += book.take()
    book.close()
    records += book.take()
    lines = ledger_lines(records, 0, clock.now_ns)["e/1"]
    assert lines.idle_ns == sum(idle_ns for idle_ns, _ in turns)
    assert lines.unattributed_ns == sum(busy_ns for _, busy_ns in turns)
    assert lines.unexplained_ns == 0
    assert [record.sequence for record in records] == list(range(1, len(records) + 1))
    idle = [record for record in records if record.kind == "idle"]
    assert all(record.busy_ns <= LONGEST_IDLE_NS for record in idle)
