"""Coroutines that have nothing to wait for, run to their end without a task."""

from collections.abc import Coroutine
from typing import TypeVar

ResultT = TypeVar("ResultT")


def at_once(work: Coroutine[None, None, ResultT]) -> ResultT:
    """Return what a coroutine returns that waits for nothing. Raise what it raises, or RuntimeError if it waits."""
    try:
        work.send(None)
    except StopIteration as done:
        result: ResultT = done.value
        return result
    work.close()
    raise RuntimeError("this has to wait for something")
