"""Periodic work shares its wakings: it is due at common moments, and never twice for one of them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.processes.beat import until_beat


class _Loop:
    def __init__(self, now):
        self._now = now

    def time(self):
        return self._now


@given(st.floats(0, 1e7), st.sampled_from([0.05, 0.1, 0.25, 0.5, 1.0, 10.0]))
def test_the_next_beat_is_a_multiple_and_not_the_one_that_has_just_been(now, period):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio, "get_running_loop", lambda: _Loop(now))
        left = until_beat(period)
    assert 0.1 * period <= left <= 1.1 * period
    beats = (now + left) / period
    assert abs(beats - round(beats)) < 1e-6 * max(beats, 1)


@pytest.mark.parametrize(("now", "left"), [(10.0, 1.0), (10.899, 0.101), (10.95, 1.05), (10.5, 0.5)])
def test_who_wakes_a_little_early_waits_for_the_beat_after(monkeypatch, now, left):
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: _Loop(now))
    assert until_beat(1.0) == pytest.approx(left)


async def test_periods_that_divide_each_other_end_together():
    loop, ends = asyncio.get_running_loop(), []

    async def wait(period):
        await asyncio.sleep(until_beat(period))
        ends.append(loop.time())

    await asyncio.sleep(until_beat(0.2) + 0.01)
    await asyncio.gather(wait(0.2), wait(0.1), wait(0.2))
    assert round(max(ends) / 0.1) - round(min(ends) / 0.1) <= 1
