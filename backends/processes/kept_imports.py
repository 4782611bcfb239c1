"""Imports of what a process is made of, which stays until its end: nothing looks for garbage among it."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_imports() -> Iterator[None]:
    """Import without the cyclic garbage collector, and hide what was imported from its later collections.

    It would walk through all modules again and again while they are read: a tenth of the time that a process takes to
    start. With torch, each later collection of everything would stop an engine host for most of a second.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
