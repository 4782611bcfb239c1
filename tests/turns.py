"""Turns between the processes of one test run: many tests at once, or one that needs the machine to itself."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


class Turns:
    """A lock in two files: tests share it, a test that is to run alone holds it exclusively."""

    def __init__(self, place: Path | None) -> None:
        """Lock files in a directory that all processes of the run share; None: there is only this process."""
        self._files: tuple[BinaryIO, BinaryIO] | None = None
        if place is not None:
            self._files = ((place / "door.lock").open("wb"), (place / "room.lock").open("wb"))

    @contextlib.contextmanager
    def taken(self, *, is_alone: bool) -> Iterator[None]:
        if self._files is None:
            yield
            return
        door, room = self._files
        fcntl.flock(door, fcntl.LOCK_EX)  # held while waiting for the room, so that no later test slips in before
        fcntl.flock(room, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(room, fcntl.LOCK_UN)
