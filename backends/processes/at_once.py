"""Coroutines that have nothing to wait for, run to their end without a task."""

from collections.abc import Coroutine
from typing import TypeVar

ResultT = TypeVar("ResultT")


class WouldWait(RuntimeError):
    """What was to be done at once has to wait for something."""


def at_once(work: Coroutine[None, None, ResultT]) -> ResultT:
    """Return what a coroutine returns that waits for nothing. Raise what it raises, or WouldWait."""
    try:
        work.send(None)
    except StopIteration as done:
        result: ResultT = done.value
        return result
    work.close()
    raise WouldWait("this has to wait for something")
