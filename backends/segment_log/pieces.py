"""Records which parts of an installation have contained data, so that a lost part is reported instead of recreated
silently.

Each part has a small file in `pieces/` of the data directory: when it was created, when it was last seen, and how much
it contained. If at a start that file exists but the part does not, a loss is recorded and logged once.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

FOLDER: Final = "pieces"
STORE: Final = "store"
STORED_ROWS: Final = "stored-rows"  # the store's number of rows, recorded by the collector
_log = logging.getLogger(__name__)

_LOST: Final = "lost-"
_SUFFIX: Final = ".json"
_NOTE_SECONDS: Final = 30.0


class Piece(msgspec.Struct, frozen=True):
    """The stored state of a part when it was last seen. `held` are counts of its contents by name; empty if unknown."""

    since: str
    seen_at: str
    held: dict[str, int] = {}


class Loss(msgspec.Struct, frozen=True):
    """A part that was missing at a start."""

    piece: str
    path: str
    found_at: str
    seen_at: str
    held: dict[str, int] = {}

    @property
    def sentence(self) -> str:
        """Return a sentence: the missing file, its last known contents, and the remedy."""
        held = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sorted(self.held.items()))
        return (
            f"{self.path} was missing at {self.found_at} and was made new; last seen {self.seen_at}"
            f"{f' with {held}' if held else ''}. If it was not meant to go, stop everything and put it back from a copy"
        )

    @property
    def facts(self) -> dict[str, object]:
        """Return the same as fields for a public page, without the path."""
        return {"piece": self.piece, "found_at": self.found_at, "seen_at": self.seen_at, "held": self.held}


class Pieces:
    """The parts of one data directory. Writing notes is best effort: errors of the disk are ignored."""

    def __init__(self, data: Path) -> None:
        self._folder = data / FOLDER

    def find_loss(self, name: str, path: Path, *, counted_as: str = "") -> Loss | None:
        """Return the loss if this part contained data and is now missing or empty; log it, and reset the part's note.

        Must be called before the part is created. `counted_as` is the name of another note with counts of its contents.
        """
        known = self._read(name)
        if known is None or _is_there(path):
            return None
        counted = self._read(counted_as) if counted_as else None
        now = _now()
        loss = Loss(name, str(path), now, known.seen_at, {**known.held, **(counted.held if counted else {})})
        with contextlib.suppress(OSError):
            self._write(f"{_LOST}{name}-{time.time_ns()}", loss)
            for each in (name, counted_as):
                if each:
                    self._path(each).unlink(missing_ok=True)
        _log.error("%s", loss.sentence)
        return loss

    def note(self, name: str, held: Mapping[str, int] | None = None) -> None:
        """Record that a part exists, with counts of its contents; `None` keeps the previous counts."""
        before = self._read(name)
        now = _now()
        kept = before.held if before is not None and held is None else dict(held or {})
        with contextlib.suppress(OSError):
            self._write(name, Piece(before.since if before is not None else now, now, kept))

    def held(self, name: str) -> dict[str, int]:
        """Return the last recorded counts of a part's contents."""
        known = self._read(name)
        return {} if known is None else known.held

    def losses(self) -> list[Loss]:
        """Return all recorded losses, oldest first."""
        found = []
        for path in sorted(self._folder.glob(f"{_LOST}*{_SUFFIX}")):
            with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
                found.append(msgspec.json.decode(path.read_bytes(), type=Loss))
        return sorted(found, key=lambda loss: loss.found_at)

    def forget_losses(self) -> int:
        """Delete all recorded losses; return how many. Raises OSError."""
        paths = list(self._folder.glob(f"{_LOST}*{_SUFFIX}"))
        for path in paths:
            path.unlink()
        return len(paths)

    def _read(self, name: str) -> Piece | None:
        try:
            return msgspec.json.decode(self._path(name).read_bytes(), type=Piece)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def _write(self, name: str, what: Piece | Loss) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._folder / f".{name}.{threading.get_native_id()}"
        draft.write_bytes(msgspec.json.encode(what) + b"\n")
        draft.replace(self._path(name))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"


class PieceWatch:
    """Records the state of parts periodically, in a separate thread, while a process uses them."""

    def __init__(self, note: Callable[[], None], seconds: float = _NOTE_SECONDS) -> None:
        self._note = note
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pieces", daemon=True)

    def start(self) -> None:
        """Record at once, and start the thread."""
        self._note()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and record a last time."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._note()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._note()


def _is_there(path: Path) -> bool:
    """Return whether a path is a file, or a directory that is not empty."""
    try:
        return path.is_file() or any(path.iterdir())
    except OSError:
        return False


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
