"""Writes one audit chain: append-only files, written by one process with one `write()` per entry.

Opening a chain changes nothing in it: an incomplete last entry stays. The first entry of the next segment records it,
and how many entries are missing that the last checkpoint covered.
"""

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.audit.chain_end import ChainEnd, find_end
from backends.audit.entries import (
    KIND_CHECKPOINT,
    KIND_GAP,
    KIND_OPENED,
    CheckpointFacts,
    Facts,
    GapFacts,
    OpenedFacts,
    TornEnd,
    line_of,
    signed_text,
)
from backends.audit.places import HEAD, LOCK, MOST_ATTEMPTS, segment_name, write_whole
from backends.audit.signing import AuditSigner
from contracts.errors import ConfigurationError

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ChainBounds:
    """When a checkpoint is due and when a segment is full."""

    checkpoint_entries: int = 1000
    checkpoint_seconds: float = 1.0
    segment_bytes: int = 64 << 20
    segment_seconds: float = 3600.0


class AuditChain:
    """An append-only hash chain in its own directory, locked by one process. Not thread-safe.

    Raise ConfigurationError if the directory cannot be written, or another process holds the lock.
    """

    def __init__(
        self,
        directory: Path,
        writer: str,
        signer: AuditSigner,
        bounds: ChainBounds | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.directory = directory
        self.missed = 0  # entries that could not be written since the last that was
        self._writer = writer
        self._signer = signer
        self._bounds = bounds or ChainBounds()
        self._now_ns = now_ns
        self._broken_at_ns: int | None = None
        self._is_gone = False  # the segment's file was removed: further writes would be lost
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _hold(directory)
            try:
                self._begin(find_end(directory, writer, now_ns()))
            except BaseException:
                os.close(self._lock)
                raise
        except OSError as error:
            raise ConfigurationError(
                f"audit directory {directory} cannot be written ({error.strerror}); choose a writable data directory "
                "with --data or TOLLKEEPER_DATA"
            ) from error

    @property
    def chain(self) -> str:
        """Return the chain's name, from its first entry."""
        return self._chain

    @property
    def seq(self) -> int:
        """Return the number of the last entry."""
        return self._seq

    @property
    def segment(self) -> str:
        """Return the name of the current segment; earlier ones are finished."""
        return self._segment

    @property
    def is_broken(self) -> bool:
        """Return whether the last write failed and no retry is due yet."""
        if self._is_gone:
            return True
        return self._broken_at_ns is not None and self._now_ns() - self._broken_at_ns < _RETRY_SECONDS * 1e9

    def append(self, kind: str, facts: Facts) -> bool:
        """Write one entry to the operating system. Return False, and count it as missed, if that fails."""
        return self.append_each(kind, (facts,)) == 1

    def append_each(self, kind: str, each: Sequence[Facts]) -> int:
        """Write entries by one `write()`, in order; return how many were written. The others are counted as missed.

        Checkpoints are written as for single entries.
        """
        done = 0
        while done < len(each):
            room = self._bounds.checkpoint_entries - self._unsigned
            some = each[done : done + max(room, 1)]
            put = 0 if self._is_gone or (self.missed and not self._tell_gap()) else self._put_each(kind, some)
            done += put
            self._unsigned += put
            if put < len(some):
                self.missed += len(each) - done
                break
            if self._unsigned >= self._bounds.checkpoint_entries:
                self.checkpoint()
        return done

    def tend(self) -> None:
        """Do what is due by time: a checkpoint, a new segment, another attempt after a failure. Call it every second.

        If the segment was removed, nothing more is written: the chain is broken until a process opens it again.
        """
        now = self._now_ns()
        if self._is_gone or os.fstat(self._descriptor).st_nlink == 0:
            self._is_gone = True
            self._note_broken(OSError(0, f"segment {self._segment} was removed; a restart begins another"))
            return
        if self.missed:
            self._tell_gap()
        if self._unsigned and now - self._signed_at_ns >= self._bounds.checkpoint_seconds * 1e9:
            self.checkpoint()
        is_old = now - self._began_at_ns >= self._bounds.segment_seconds * 1e9
        if self._has_content and (is_old or self._size >= self._bounds.segment_bytes):
            self.rotate()

    def checkpoint(self) -> bool:
        """Write a signature over all entries so far, and a copy of it to the head file. Return False if that failed."""
        at_ns = self._now_ns()
        seq = self._seq + 1
        signature = self._signer.sign(signed_text(self._chain, seq, self._prev, at_ns))
        facts = CheckpointFacts(at_ns, self._chain, self._signer.public.id, signature)
        if not self._put(KIND_CHECKPOINT, facts):
            return False
        self._unsigned, self._signed_at_ns = 0, at_ns
        try:
            write_whole(self.directory / HEAD, self._last_line)
        except OSError as error:
            self._note_broken(error)
            return False
        return True

    def rotate(self) -> None:
        """Finish the segment with a checkpoint, and continue in a new one."""
        if (self._unsigned and not self.checkpoint()) or not self._has_content:
            return
        try:
            following = self._open_segment(self._seq + 1)
            os.chmod(self.directory / self._segment, 0o400)
        except OSError as error:
            self._note_broken(error)
            return
        self._unsynced.append(self._descriptor)
        self._enter(*following)

    def sync(self) -> None:
        """Flush finished segments to the disk. Blocks; may be called from a thread."""
        while self._unsynced:
            descriptor = self._unsynced.pop()
            with contextlib.suppress(OSError):  # verification finds lost entries
                os.fsync(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Write a last checkpoint if entries are unsigned, and release the directory."""
        if self._unsigned:
            self.checkpoint()
        self._unsynced.append(self._descriptor)
        self.sync()
        os.close(self._lock)

    def _begin(self, end: ChainEnd) -> None:
        self._chain, self._seq, self._prev = end.chain, end.seq, end.prev
        self._unsigned = 0
        self._signed_at_ns = self._now_ns()
        self._last_line = b""
        self._unsynced: list[int] = []
        self._enter(*self._open_segment(self._seq + 1))
        self._opening: OpenedFacts | None = OpenedFacts(
            self._now_ns(), self._chain, self._writer, end.torn, end.lost_entries
        )
        if end.torn or end.lost_entries:
            _log.error("audit chain was damaged", extra={"directory": str(self.directory), "lost": end.lost_entries})
        if not self._open():
            os.close(self._descriptor)
            raise OSError(0, "its first entry cannot be written")

    def _open(self) -> bool:
        """Write a segment's opening entry, after an incomplete one; nothing else is written before it."""
        opening = self._opening
        if opening is None:
            return True
        self._opening = None
        if self._put(KIND_OPENED, opening):
            self._unsigned += 1
            return True
        if self._opening is None:  # else the opening is incomplete itself, and the next one records it too
            self._opening = opening
        return False

    def _put(self, kind: str, facts: Facts) -> bool:
        return self._put_each(kind, (facts,)) == 1

    def _put_each(self, kind: str, each: Sequence[Facts]) -> int:
        """Write entries one after another; return how many are complete."""
        if self._opening is not None and not self._open():
            return 0
        entries: list[tuple[str, bytes]] = []
        prev = self._prev
        for seq, facts in enumerate(each, self._seq + 1):
            entries.append(line_of(prev, seq, kind, facts))
            prev = entries[-1][0]
        done = 0
        try:
            written = os.write(self._descriptor, b"".join([line for _, line in entries]))
            done = self._note_written(entries, written)
            if done < len(entries):
                torn = written - sum([len(line) for _, line in entries[:done]])
                if torn:
                    self._leave_torn(entries[done][1][:torn], each[done])
                raise OSError(0, "the disk took a part of an entry")
        except OSError as error:
            self._note_broken(error)
            return done
        if self._broken_at_ns is not None:
            self._broken_at_ns = None
            _log.info("audit chain is written again", extra={"directory": str(self.directory)})
        return done

    def _note_written(self, entries: Sequence[tuple[str, bytes]], written: int) -> int:
        """Record the entries that were written completely; return their number."""
        done = 0
        for digest, line in entries:
            written -= len(line)
            if written < 0:
                break
            done += 1
            self._seq += 1
            self._prev = digest
            self._size += len(line)
            self._has_content = True
            self._last_line = line
        return done

    def _leave_torn(self, torn: bytes, facts: Facts) -> None:
        """Continue in a new segment after an incomplete entry, which its opening records as after a crash."""
        left = self._segment
        following = self._open_segment(self._seq + 1)
        os.close(self._descriptor)
        self._enter(*following)
        before = facts.torn if isinstance(facts, OpenedFacts) else ()
        torn_ends = (*before, TornEnd.of(left, torn))
        self._opening = OpenedFacts(self._now_ns(), self._chain, self._writer, torn_ends)

    def _tell_gap(self) -> bool:
        if self.is_broken or not self._put(KIND_GAP, GapFacts(self._now_ns(), self.missed)):
            return False
        self.missed = 0
        self._unsigned += 1
        return True

    def _note_broken(self, error: OSError) -> None:
        if self._broken_at_ns is None:
            _log.error("audit chain cannot be written", extra={"reason": error.strerror or str(error)})
        self._broken_at_ns = self._now_ns()

    def _open_segment(self, first_seq: int) -> tuple[int, str]:
        """Create a new file. An existing one with that number contains no complete entry, and stays."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for attempt in range(MOST_ATTEMPTS):
            name = segment_name(first_seq, attempt)
            with contextlib.suppress(FileExistsError):
                return os.open(self.directory / name, flags, 0o600), name
        raise OSError(0, f"{MOST_ATTEMPTS} segments are there already that begin with entry {first_seq}")

    def _enter(self, descriptor: int, segment: str) -> None:
        self._descriptor, self._segment = descriptor, segment
        self._size = 0
        self._has_content = False
        self._began_at_ns = self._now_ns()


def _hold(directory: Path) -> int:
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ConfigurationError(
            f"another process writes the audit chain in {directory}; stop it, or choose another data directory"
        ) from error
    return descriptor
