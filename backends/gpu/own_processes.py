"""Determines which processes on a GPU belong to this program."""

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_MAX_DEPTH: Final = 64


class OwnProcesses:
    """Finds out whether a process descends from one of `roots` (by default this process), by walking up its parents.

    Results are cached by pid and start time.
    """

    def __init__(self, roots: tuple[int, ...] = (), proc: Path = _PROC) -> None:
        self._roots = frozenset(roots or (os.getpid(),))
        self._proc = proc
        self._known: dict[int, tuple[str, bool]] = {}  # by pid: its start time, and whether it is a descendant

    def is_ours(self, pid: int) -> bool | None:
        """Return whether a process is a root or its descendant; `None` if the pid is unknown here (another PID
        namespace).
        """
        if pid in self._roots:
            return True
        found = self._stat(pid)
        if found is None:
            self._known.pop(pid, None)
            return None
        parent, started = found
        known = self._known.get(pid)
        if known is None or known[0] != started:
            known = self._known[pid] = (started, self._descends(parent))
        return known[1]

    def _descends(self, pid: int) -> bool:
        for _ in range(_MAX_DEPTH):
            if pid in self._roots:
                return True
            found = self._stat(pid)
            if found is None or pid <= 1:
                return False
            pid = found[0]
        return False

    def _stat(self, pid: int) -> tuple[int, str] | None:
        """Return a process's parent and start time in clock ticks. Its name is in brackets and may contain anything."""
        try:
            text = (self._proc / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        fields = text.rpartition(")")[2].split()
        return int(fields[1]), fields[19]
