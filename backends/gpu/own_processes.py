"""Find out which processes on a GPU are this process or its children."""

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_MAX_DEPTH: Final = 64


class OwnProcesses:
    """Walks from a process to its parents. `roots` are whose descendants count as ours: this process, where unset.

    A process found to be ours or not is looked at again only when another has taken its number.
    """

    def __init__(self, roots: tuple[int, ...] = (), proc: Path = _PROC) -> None:
        self._roots = frozenset(roots or (os.getpid(),))
        self._proc = proc
        self._known: dict[int, tuple[str, bool]] = {}  # by pid: when it started, and whether it is ours

    def is_ours(self, pid: int) -> bool | None:
        """Return whether a process is ours; `None` if there is none of this number here (another PID namespace)."""
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
        """Return a process' parent and the clock tick it started at. Its name may hold anything but is in brackets."""
        try:
            text = (self._proc / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        fields = text.rpartition(")")[2].split()
        return int(fields[1]), fields[19]
