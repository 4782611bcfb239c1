"""Pauses Python's cyclic garbage collector for work that creates many objects without cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Turn off the cyclic garbage collector in a `with` block. With several threads, the first one restores it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
