"""Work that makes many objects and no cycles, without the cyclic collector walking over them time and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Turn the cyclic collector off for the block. Of several threads, the first that began turns it on again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
