"""Ends a GPU process together with the host that started it: an orphan would keep the GPU's memory."""

import ctypes
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # prctl(2)


def die_with_parent() -> bool:
    """Ask Linux to kill this process when the thread that started it ends; return whether that was accepted."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        return int(library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)) == 0
    except (OSError, AttributeError):
        return False
