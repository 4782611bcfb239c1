"""Damage in a segment log: lost entries, their times, and the damaged files.

The directory `damaged/` beside the segments has the damaged segments, kept for inspection after the log has released
them, and `losses.jsonl`, which stays until the directory is deleted. Both are bounded: the oldest files are deleted
first, and older losses are summed up in one line.
"""

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from backends.segment_log.segment_frames import frames

_log = logging.getLogger(__name__)

FOLDER: Final = "damaged"
MAX_FILES: Final = 8
MAX_FILE_BYTES: Final = 128 << 20  # of all damaged segments together
_LOSSES: Final = "losses.jsonl"
_MAX_LOSSES_BYTES: Final = 256 << 10

TimeOf = Callable[[bytes], int | None]  # returns an entry's time in Unix nanoseconds


class Loss(msgspec.Struct, frozen=True, omit_defaults=True):
    """Entries that can no longer be read. Times are those of the entries before and after them, if known.

    `entries` is `None` if they had no numbers; `end` equals `begin` if their bytes are gone.
    """

    segment: int
    begin: int
    end: int
    found_at_ns: int
    entries: int | None = None
    first: int | None = None  # number of the first missing entry
    last: int | None = None
    after_ns: int | None = None
    before_ns: int | None = None
    kept_as: str = ""  # the segment's name in `damaged/`; empty: it could not be copied there

    def line(self) -> str:
        """Return a phrase that describes the damage."""
        count = "an unknown number of entries" if self.entries is None else f"{self.entries} entries"
        if self.entries == 1:
            count = f"1 entry (number {self.first})" if self.first else "1 entry"
        elif self.first is not None:
            count += f" (numbers {self.first} to {self.last})"
        after = "" if self.after_ns is None else f" after {_iso(self.after_ns)}"
        before = f" before {_iso(self.found_at_ns if self.before_ns is None else self.before_ns)}"
        return f"{count} written{after}{' and' if after else ''}{before}"


class Missing(msgspec.Struct, frozen=True):
    """The sum of several losses. `entries` counts the known ones; `unknown` is the number of losses without a count."""

    entries: int = 0
    unknown: int = 0
    from_ns: int | None = None
    to_ns: int | None = None

    @property
    def is_any(self) -> bool:
        """Return whether anything is missing."""
        return bool(self.entries or self.unknown)

    def line(self) -> str:
        """Return a phrase that describes the damage."""
        uncounted = f" and {self.unknown} losses of unknown size" if self.unknown else ""
        between = f", from {_iso(self.from_ns)} to {_iso(self.to_ns)}" if self.from_ns and self.to_ns else ""
        return f"{self.entries} entries{uncounted} lost to damage on disk{between}; see {FOLDER}/{_LOSSES}"

    def as_json(self) -> dict[str, object]:
        """Return the fields for JSON, with times in ISO 8601."""
        return {
            "entries": self.entries,
            "uncounted_losses": self.unknown,
            "from": None if self.from_ns is None else _iso(self.from_ns),
            "to": None if self.to_ns is None else _iso(self.to_ns),
        }


def survey(
    descriptor: int,
    segment: int,
    size: int,
    markers: Sequence[int],
    bounds: tuple[int, int, int, int],
    time_of: TimeOf | None = None,
) -> list[Loss]:
    """Read a whole segment and return the losses in it.

    `bounds` are its first number, the first after it, and when it was begun and ended (Unix ns); 0: unknown.
    """
    low, high, begun_ns, ended_ns = bounds
    now, losses = time.time_ns(), list[Loss]()
    expected, damaged_at, at_ns = low, -1, begun_ns or None

    def lose(upto: int, end: int, before_ns: int | None) -> None:
        begin = end if damaged_at < 0 else damaged_at
        if not expected:
            losses.append(Loss(segment, begin, end, now, after_ns=at_ns, before_ns=before_ns))
        elif upto > expected:
            count = upto - expected
            losses.append(Loss(segment, begin, end, now, count, expected, upto - 1, at_ns, before_ns))

    for found in frames(descriptor, 0, size, markers, max(low - 1, 0)):
        if found.payload is None:
            damaged_at = found.begin if damaged_at < 0 else damaged_at
            continue
        then_ns = time_of(found.payload) if time_of is not None else None
        if found.number and (damaged_at >= 0 or (expected and found.number != expected)):
            lose(found.number, found.begin, then_ns)
        elif damaged_at >= 0:
            losses.append(Loss(segment, damaged_at, found.begin, now, after_ns=at_ns, before_ns=then_ns))
        expected = found.number + 1 if found.number else 0
        damaged_at, at_ns = -1, then_ns or at_ns
    if high and expected:
        lose(high, size, ended_ns or None)
    elif damaged_at >= 0:
        losses.append(Loss(segment, damaged_at, size, now, after_ns=at_ns, before_ns=ended_ns or None))
    return losses


class DamageBook:
    """The recorded losses of one log, of this and earlier processes. Creates nothing on disk before the first loss."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / FOLDER
        self._log_directory = directory
        self.losses = read_losses(directory)
        self.missing = sum_up(self.losses)
        self._ranges = [(one.first, one.last) for one in self.losses if one.first is not None and one.last is not None]

    def add(self, found: Iterable[Loss], path: Path) -> None:
        """Record losses of a segment that are not recorded yet, and keep the segment. Never raises OSError."""
        fresh = [piece for loss in found for piece in self._unknown(loss)]
        if not fresh:
            return
        kept_as = self._keep(path)
        fresh = [msgspec.structs.replace(loss, kept_as=kept_as) for loss in fresh]
        self.losses += fresh
        self.missing = sum_up(self.losses)
        for loss in fresh:
            _log.error(
                "segment damaged, entries are missing",
                extra={
                    "directory": str(self._log_directory),
                    "segment": loss.segment,
                    "missing": loss.line(),
                    "kept_as": f"{FOLDER}/{kept_as}" if kept_as else "",
                },
            )
        self._write(fresh)

    def _unknown(self, loss: Loss) -> list[Loss]:
        """Return the parts of a loss that are not recorded yet."""
        if loss.first is None or loss.last is None:
            places = {(known.segment, known.begin) for known in self.losses if known.first is None}
            return [] if (loss.segment, loss.begin) in places else [loss]
        parts, first = [], loss.first
        for begin, end in [*sorted(self._ranges), (loss.last + 1, loss.last + 1)]:
            upto = min(begin - 1, loss.last)
            if first <= upto:
                parts.append(msgspec.structs.replace(loss, entries=upto - first + 1, first=first, last=upto))
            first = max(first, end + 1)
        self._ranges.append((loss.first, loss.last))
        return parts

    def _keep(self, path: Path) -> str:
        """Link a segment into `damaged/`; return its name there, or "" if that fails."""
        kept = self.directory / path.name
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            if not path.exists() or path.stat().st_size > MAX_FILE_BYTES:
                return ""
            if not kept.exists():
                self._link(path, kept)
            self._drop_oldest(kept)
        except OSError as error:
            _log.error("damaged segment cannot be kept", extra={"path": str(path), "reason": error.strerror})
            return ""
        return kept.name

    def _link(self, path: Path, kept: Path) -> None:
        try:
            os.link(path, kept)
        except OSError:  # a file system without links
            shutil.copyfile(path, kept)
            kept.chmod(0o600)

    def _drop_oldest(self, latest: Path) -> None:
        others = sorted(path for path in self.directory.glob("*.segment") if path != latest)
        sizes = [path.stat().st_size for path in others]
        total = sum(sizes) + latest.stat().st_size
        while others and (len(others) >= MAX_FILES or total > MAX_FILE_BYTES):
            others.pop(0).unlink(missing_ok=True)
            total -= sizes.pop(0)

    def _write(self, fresh: Sequence[Loss]) -> None:
        path = self.directory / _LOSSES
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            lines = b"".join(msgspec.json.encode(loss) + b"\n" for loss in fresh)
            if path.exists() and path.stat().st_size + len(lines) > _MAX_LOSSES_BYTES:
                self.losses = _folded(self.losses)
                lines = b"".join(msgspec.json.encode(loss) + b"\n" for loss in self.losses)
                draft = path.with_suffix(".new")
                _append(draft, lines, os.O_TRUNC)
                os.replace(draft, path)
                return
            _append(path, lines, os.O_APPEND)
        except OSError as error:
            _log.error(
                "losses cannot be stored, a restart forgets them",
                extra={"path": str(path), "reason": error.strerror},
            )


def read_losses(directory: Path) -> list[Loss]:
    """Return a log's recorded losses. Unreadable lines are skipped."""
    try:
        content = (directory / FOLDER / _LOSSES).read_bytes()
    except OSError:
        return []
    losses = []
    for line in content.splitlines():
        try:
            losses.append(msgspec.json.decode(line, type=Loss))
        except msgspec.MsgspecError:
            continue
    return losses


def sum_up(losses: Iterable[Loss]) -> Missing:
    """Return the sum of losses."""
    entries = unknown = 0
    begins, ends = list[int](), list[int]()
    for loss in losses:
        if loss.entries is None:
            unknown += 1
        else:
            entries += loss.entries
        ends.append(loss.found_at_ns if loss.before_ns is None else loss.before_ns)
        if loss.after_ns is not None:
            begins.append(loss.after_ns)
    return Missing(entries, unknown, min([*begins, *ends], default=None), max(ends, default=None))


def _folded(losses: Sequence[Loss]) -> list[Loss]:
    """Return the losses with the older half summed up in one without numbers."""
    middle = len(losses) // 2
    older, last = losses[:middle], losses[middle - 1]
    total = sum_up(older)
    whole = Loss(last.segment, -1, -1, last.found_at_ns, total.entries, after_ns=total.from_ns, before_ns=total.to_ns)
    uncounted = [loss for loss in older if loss.entries is None][-1:]
    return [whole, *uncounted, *losses[middle:]]


def _append(path: Path, content: bytes, flags: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _iso(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
