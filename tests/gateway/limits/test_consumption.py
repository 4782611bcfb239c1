"""How much of a budget the next minute may need: never less than what the last one has used."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.counters.lease_connection import Consumption

SECOND_NS = 1_000_000_000


@given(
    steps=st.lists(
        st.tuples(st.floats(0.01, 20), st.integers(1, 1000), st.floats(0, 1), st.booleans()), min_size=1, max_size=200
    )
)
def test_a_lease_covers_at_least_what_was_spent_in_the_last_minute(steps: list[tuple[float, int, float, bool]]):
    consumption, now_ns, level = Consumption(), 7 * SECOND_NS, 0
    spent: list[tuple[int, int]] = []
    for wait_seconds, taken, part, looks_first in steps:
        now_ns += int(wait_seconds * SECOND_NS)
        if looks_first:  # as a gateway does ten times a second
            consumption.minute(level, now_ns)
        consumption.note(taken, level, 0, now_ns)
        charged = int(taken * part)
        level += charged
        spent.append((now_ns, charged))
        last_minute = sum(amount for at_ns, amount in spent if at_ns > now_ns - 60 * SECOND_NS)
        assert consumption.minute(level, now_ns) >= last_minute


def test_a_steady_pace_is_leased_for_a_minute_and_a_half_whoever_looks_first():
    consumption, level = Consumption(), 0
    for tenth in range(1200):
        now_ns = SECOND_NS + tenth * SECOND_NS // 10
        consumption.minute(level, now_ns)
        consumption.note(50, level, 0, now_ns)
        level += 50
    assert 1.5 * 60 * 500 * 0.95 <= consumption.minute(level, now_ns) <= 1.5 * 60 * 500 * 1.15


def test_nothing_is_leased_after_a_minute_without_use_but_a_few_portions_for_an_hour():
    consumption = Consumption()
    consumption.note(50, 0, 0, SECOND_NS)
    assert consumption.minute(50, 62 * SECOND_NS) == 0
    assert consumption.resting(3600 * SECOND_NS) == 200
    assert consumption.resting(3602 * SECOND_NS) == 0
