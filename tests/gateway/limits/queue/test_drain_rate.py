"""How long a full queue tells its callers to wait."""

import pytest

from gateway.limits.queue.drain_rate import DrainRate
from tests.gateway.limits.queue.queueing import SECOND_NS


def test_a_pace_is_unknown_until_two_have_begun() -> None:
    rate = DrainRate()
    assert rate.wait_seconds(100, 0) == 1.0
    rate.note(0)
    assert rate.per_second(SECOND_NS) is None
    rate.note(SECOND_NS)
    assert rate.wait_seconds(100, SECOND_NS) == pytest.approx(100)


def test_a_pool_that_has_stopped_is_not_promised_soon() -> None:
    rate = DrainRate()
    for second in range(3):
        rate.note(second * SECOND_NS)
    assert rate.wait_seconds(10, 2 * SECOND_NS) == pytest.approx(10)
    assert rate.wait_seconds(10, 200 * SECOND_NS) == pytest.approx(1_000)


def test_hours_in_which_nobody_waited_do_not_count_as_slowness() -> None:
    rate = DrainRate()
    for second in range(3):
        rate.note(second * SECOND_NS)
    rate.pause(2 * SECOND_NS)
    assert rate.wait_seconds(10, 10_000 * SECOND_NS) == pytest.approx(10)
    rate.note(10_000 * SECOND_NS)
    rate.note(10_002 * SECOND_NS)
    assert rate.wait_seconds(10, 10_002 * SECOND_NS) == pytest.approx(20)


@pytest.mark.parametrize(("ahead", "seconds"), [(0, 0.1), (10**9, 3_600.0)])
def test_a_wait_is_between_a_tenth_of_a_second_and_an_hour(ahead: int, seconds: float) -> None:
    rate = DrainRate()
    rate.note(0)
    rate.note(SECOND_NS)
    assert rate.wait_seconds(ahead, SECOND_NS) == seconds
