"""A check that blocks: the one that asks is answered in time, and it is run once at a time."""

import threading

import pytest

from backends.processes.background_check import BackgroundCheck


async def test_a_result_and_a_failure_are_passed_on() -> None:
    answers = iter([1, 2])
    check = BackgroundCheck("numbers", lambda: next(answers))
    assert [await check.within(5.0), await check.within(5.0)] == [1, 2]

    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await BackgroundCheck("fails", fail).within(5.0)


async def test_a_check_that_hangs_is_waited_for_no_longer_and_not_begun_again() -> None:
    released, begun = threading.Event(), []

    def hang() -> str:
        begun.append(1)
        released.wait(30)
        return "done"

    check = BackgroundCheck("hangs", hang)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await check.within(0.02)
    assert len(begun) == 1
    released.set()
    assert await check.within(5.0) == "done"
    assert await check.within(5.0) == "done" and len(begun) == 2
