"""Detects without a query whether a SQLite control database may have changed since it was read, from its files' times.

A query takes a thread and a millisecond of CPU time, several times a second in every process of an idle installation.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import URL

from backends.processes.file_stamp import file_stamp

_SETTLED_NS: Final = 50_000_000  # file times are only exact to some milliseconds: two commits may have the same
_Stamp = tuple[tuple[int, int, int] | None, ...]


class ChangeDetector:
    """Detects changes for one reader of a database. Not thread-safe."""

    def __init__(
        self,
        url: URL,
        ask_every_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`url` is the database's; it is read every `ask_every_seconds` even if its files have not changed."""
        path = url.database if url.get_backend_name() == "sqlite" else None
        is_file = path not in (None, "", ":memory:")
        # A commit changes the write-ahead log, a checkpoint the database file.
        self._paths = (Path(str(path)), Path(f"{path}-wal")) if is_file else ()
        self._ask_every_seconds = ask_every_seconds
        self._monotonic = monotonic
        self._wall_ns = wall_ns
        self._stamp: _Stamp | None = None
        self._read_at = float("-inf")

    def may_have_changed(self) -> bool:
        """Return whether a read could find changes; always True for databases other than SQLite."""
        if self._stamp is None or self._monotonic() - self._read_at >= self._ask_every_seconds:
            return True
        return self._stamp != self._now()

    def begin_read(self) -> None:
        """Record that the database is about to be read, including all commits until now."""
        self._read_at = self._monotonic()
        stamp = self._now()
        newest_ns = max((one[0] for one in stamp if one is not None), default=None)
        is_settled = newest_ns is not None and self._wall_ns() - newest_ns >= _SETTLED_NS
        self._stamp = stamp if is_settled else None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Enclose a read: calls `begin_read`, and `forget` if it fails."""
        self.begin_read()
        try:
            yield
        except BaseException:
            self.forget()
            raise

    def forget(self) -> None:
        """Make the next check read the database: the last read failed, or was incomplete."""
        self._stamp = None

    def _now(self) -> _Stamp:
        return tuple(map(file_stamp, self._paths))
