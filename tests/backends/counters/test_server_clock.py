"""The distance to Redis' clock: narrowed by each answer, and given up when the clock was set."""

from backends.counters.server_clock import ServerClock

MILLISECOND = 1_000_000


def test_each_answer_narrows_the_error():
    clock = ServerClock(lambda: 0, lambda: 0)
    clock.observe(100 * MILLISECOND, 110 * MILLISECOND, 1_105 * MILLISECOND)
    assert clock.offset_ns == 1_000 * MILLISECOND
    assert clock.error_ns(110 * MILLISECOND) == 5 * MILLISECOND + 1
    clock.observe(120 * MILLISECOND, 122 * MILLISECOND, 1_121 * MILLISECOND)
    assert abs(clock.offset_ns - 1_000 * MILLISECOND) <= clock.error_ns(122 * MILLISECOND)
    assert clock.error_ns(122 * MILLISECOND) <= MILLISECOND + 10_000


def test_the_error_grows_while_nothing_is_heard():
    clock = ServerClock(lambda: 0, lambda: 0)
    clock.observe(0, 2 * MILLISECOND, 1_001 * MILLISECOND)
    assert clock.error_ns(10_002 * MILLISECOND) - clock.error_ns(2 * MILLISECOND) == 2 * MILLISECOND


def test_a_clock_that_was_set_is_followed():
    clock = ServerClock(lambda: 0, lambda: 0)
    clock.observe(0, 2 * MILLISECOND, 1_001 * MILLISECOND)
    clock.observe(4 * MILLISECOND, 6 * MILLISECOND, 500_005 * MILLISECOND)
    assert clock.offset_ns == 500_000 * MILLISECOND
