"""How often something happened lately."""

from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.abuse.window_count import WindowCount

_SECOND = 1_000_000_000


def test_an_event_counts_for_the_window_and_not_for_much_longer() -> None:
    count = WindowCount(60)
    count.add(1000 * _SECOND)
    assert count.count(1059 * _SECOND) == 1
    assert count.count(1066 * _SECOND) == 0


def test_who_waits_as_told_finds_room() -> None:
    count = WindowCount(60)
    for second in range(10):
        count.add((1000 + 3 * second) * _SECOND)
    now = 1030 * _SECOND
    wait = count.seconds_until_below(10, now)
    assert 0 < wait <= 66
    assert count.count(now + int((wait - 0.001) * _SECOND)) == 10
    assert count.count(now + int(wait * _SECOND)) < 10


def test_nobody_waits_where_there_is_room() -> None:
    count = WindowCount(60)
    count.add(0)
    assert count.seconds_until_below(2, 0) == 0.0


@settings(max_examples=40)
@given(st.lists(st.integers(0, 200), max_size=60), st.integers(1, 5))
def test_no_window_that_holds_more_than_is_counted_is_missed(seconds: list[int], window: int) -> None:
    count, added = WindowCount(window), list[int]()
    for second in sorted(seconds):
        count.add(second * _SECOND)
        added.append(second)
        assert count.count(second * _SECOND) >= sum(second - other < window for other in added)
