"""Runs coroutines that never wait, without a task."""

from collections.abc import Coroutine
from typing import TypeVar

ResultT = TypeVar("ResultT")


class WouldWait(RuntimeError):
    """A coroutine that should not wait did."""


def at_once(work: Coroutine[None, None, ResultT]) -> ResultT:
    """Run a coroutine that waits for nothing and return its result. Raises what it raises, or WouldWait if it waits."""
    try:
        work.send(None)
    except StopIteration as done:
        result: ResultT = done.value
        return result
    work.close()
    raise WouldWait("this has to wait for something")
