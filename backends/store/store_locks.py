"""File locks for writing to the store: by an exporter batch by batch, or by a command with exclusive access.

They are files in the data directory, because exporter and command are different processes, and the kernel releases the
locks of a process that dies. Whether a batch was in doubt at that moment is stored as one byte in a file.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError, StoreUnavailable

_IN_DOUBT: Final = b"1"
_SETTLED: Final = b"0"
_POLL_SECONDS: Final = 0.01


class StoreLocks:
    """Locks for one installation's store, safe to use from several threads and processes."""

    def __init__(self, data: Path) -> None:
        self._directory = data
        self._gate = data / "store.gate"  # locked at the start of each turn, so that turns cannot starve a command
        self._turn = data / "store.turn"
        self._commands = data / "store.command"
        self._counting = threading.Lock()
        self._open_turns = 0

    @contextmanager
    def turn(self) -> Iterator[Callable[[], None]]:
        """Hold the lock for one batch, from its first attempt to its settlement; waits while a command has exclusive
        access.

        Yields a function to call when the batch is settled. If the process ends before, the batch is marked as in
        doubt, and the next turn must be for the same batch.
        """
        gate = self._opened(self._gate)
        work = self._opened(self._turn)
        try:
            fcntl.flock(gate, fcntl.LOCK_SH)
            fcntl.flock(work, fcntl.LOCK_SH)
            fcntl.flock(gate, fcntl.LOCK_UN)
            with self._counting:
                os.pwrite(work, _IN_DOUBT, 0)  # first, so that a failure begins no turn
                self._open_turns += 1
            is_settled = False

            def settle() -> None:
                nonlocal is_settled
                is_settled = True

            try:
                yield settle
            finally:
                with self._counting:
                    self._open_turns -= 1
                    if is_settled and self._open_turns == 0:
                        os.pwrite(work, _SETTLED, 0)
        finally:
            os.close(gate)
            os.close(work)

    @property
    def is_in_doubt(self) -> bool:
        """Return whether a process has ended in the middle of a batch, or is in the middle of one now."""
        try:
            return self._turn.read_bytes()[:1] == _IN_DOUBT
        except FileNotFoundError:
            return False

    @contextmanager
    def held(self, patience_seconds: float = 30.0) -> Iterator[None]:
        """Hold exclusive access: no batch is in progress or in doubt, and new ones wait.

        Raises StoreUnavailable if a batch in progress does not end in time, and ConfigurationError if a process ended
        in the middle of one: whether the store has it is unknown until it is tried again.
        """
        deadline = time.monotonic() + patience_seconds
        gate = self._opened(self._gate)
        work = self._opened(self._turn)
        try:
            for descriptor in (gate, work):
                self._lock(descriptor, deadline)
            if os.pread(work, 1, 0) == _IN_DOUBT:
                raise ConfigurationError(
                    f"a collector on {self._directory} ended in the middle of a batch; start it, let it finish "
                    "that batch, and try again"
                )
            yield
        finally:
            os.close(work)
            os.close(gate)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of commands that create copies of tables, since each of them drops the copies of earlier ones.

        Raises ConfigurationError if another command has it.
        """
        descriptor = self._opened(self._commands)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigurationError(
                    f"another command copies or checks the store of {self._directory}; try again when it has ended"
                ) from error
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise StoreUnavailable(
                        "the collector's batch in progress does not end; does the store take it? Its log says"
                    ) from error
                time.sleep(_POLL_SECONDS)

    def _opened(self, path: Path) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be opened ({error.strerror}); name the collector's data directory with --data"
            ) from error
