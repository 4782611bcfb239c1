"""Excludes imported modules from garbage collection, because they stay until the process ends."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_imports() -> Iterator[None]:
    """Disable the cyclic garbage collector during imports, and exclude the imported objects from later collections.

    Otherwise it would walk all modules repeatedly during imports, which takes a tenth of a process's start. With torch,
    each later full collection would stop an engine host for most of a second.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
