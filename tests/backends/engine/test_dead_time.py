"""The time between an engine's death and the engine that takes its place is on a line of its own."""

from algorithms.gpu_time.ledger import ledger_lines
from backends.engine.step_book import StepBook

SECOND = 1_000_000_000


def book(now_ns: int, dead_since_ns: int | None) -> StepBook:
    return StepBook("e/2", "m", "r", "g", now_ns=lambda: now_ns, wall_offset_ns=0, dead_since_ns=dead_since_ns)


def test_a_revived_engine_tells_of_the_death_before_it() -> None:
    one = book(30 * SECOND, 20 * SECOND)
    one.lifecycle("load", 30 * SECOND)
    one.lifecycle(None, 42 * SECOND)
    one.queue(42 * SECOND, runnable=True)
    one.place(43 * SECOND, SECOND)
    records = one.take()
    assert [(record.kind, record.started_at_ns, record.busy_ns) for record in records] == [
        ("dead", 20 * SECOND, 10 * SECOND),
        ("load", 30 * SECOND, 12 * SECOND),
    ]
    lines = ledger_lines(records, 20 * SECOND, 42 * SECOND)["e/2"]
    assert (lines.dead_ns, lines.load_ns, lines.lifecycle_ns) == (10 * SECOND, 12 * SECOND, 22 * SECOND)
    assert lines.unexplained_ns == 0


def test_an_engine_that_takes_nobody_s_place_was_never_dead() -> None:
    one = book(30 * SECOND, None)
    one.lifecycle("load", 30 * SECOND)
    one.lifecycle(None, 31 * SECOND)
    one.queue(31 * SECOND, runnable=False)
    one.place(32 * SECOND, SECOND)
    assert [record.kind for record in one.take()] == ["load", "idle"]
