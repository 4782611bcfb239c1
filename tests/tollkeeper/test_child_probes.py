"""A process that waits for a processor is not taken for a hung one; one that sleeps, is stopped or waits long is."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tollkeeper.child_probes import ProcessorWait, is_stopped

SPINS = "while True: pass"
SLEEPS = "import time; time.sleep(600)"


class Clock:
    """A clock whose seconds since the last answer are what a test says."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@contextmanager
def running(code: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-S", "-c", code])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def starved() -> Iterator[int]:
    """A process that wants to run on a core whose other process comes first."""
    core = {min(os.sched_getaffinity(0))}
    with ExitStack() as stack:
        wanting, first = (stack.enter_context(running(SPINS)) for _ in range(2))
        for pid in (wanting, first):
            os.sched_setaffinity(pid, core)
        os.sched_setscheduler(wanting, os.SCHED_IDLE, os.sched_param(0))
        yield wanting


def ran_ns(pid: int) -> int:
    with open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[0])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_process_that_waits_for_a_processor_is_not_hung(starved: int) -> None:
    wait = ProcessorWait()
    wait.answered(starved)
    until(lambda: wait.explains(starved))


@pytest.mark.parametrize(("seconds", "is_explained"), [(29.9, True), (30.0, False), (31.0, False)])
def test_for_half_a_minute_at_most(starved: int, seconds: float, is_explained: bool) -> None:
    clock = Clock()
    wait = ProcessorWait(clock)
    wait.answered(starved)
    clock.seconds = seconds
    until(lambda: wait.explains(starved) or not is_explained)
    assert wait.explains(starved) == is_explained


def test_one_that_sleeps_or_is_stopped_has_no_such_excuse() -> None:
    with running(SLEEPS) as pid:
        until(lambda: ran_ns(pid) > 0)
        time.sleep(0.5)  # its start is over
        clock = Clock()
        wait = ProcessorWait(clock)
        wait.answered(pid)
        clock.seconds = 3.0
        until(lambda: not wait.explains(pid))
        os.kill(pid, signal.SIGSTOP)
        until(lambda: is_stopped(pid))
        assert not wait.explains(pid)


def test_nothing_is_explained_before_an_answer_or_of_a_process_that_is_gone() -> None:
    with running(SPINS) as pid:
        assert not ProcessorWait().explains(pid)
        wait = ProcessorWait()
        wait.answered(pid)
    assert not wait.explains(pid)
