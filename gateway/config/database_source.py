"""Snapshots from the control-plane database."""

from typing import Final

from backends.control.change_detector import ChangeDetector
from backends.control.database import ControlDatabase
from backends.control.kept_snapshot import SnapshotKeeper
from backends.control.snapshot import Reading, read_revision, read_snapshot
from contracts.errors import ControlUnavailable
from contracts.serving.configuration import Snapshot

_ASK_EVERY_SECONDS: Final = 2.0  # although the files of SQLite say that nothing has changed


class DatabaseSource:
    """Polls the revision; when it has changed, reads what changed.

    With a `keeper` the last snapshot is stored on disk, and `load` returns it while the database is unreachable.
    """

    def __init__(self, url: str, keeper: SnapshotKeeper | None = None) -> None:
        self._database = ControlDatabase(url)
        self._keeper = keeper
        self.kept_age_seconds: float | None = None  # of what was loaded; none: it is the database's own
        self._last: Reading | None = None
        self._was_away = False
        self._has_answered = False
        self._look = ChangeDetector(self._database.url, _ASK_EVERY_SECONDS)

    @property
    def has_answered(self) -> bool:
        """Return whether the database has returned its revision to the poll in progress."""
        return self._has_answered

    def load(self) -> Snapshot:
        """Read the whole configuration, or the stored snapshot. Raises ControlUnavailable, and ConfigurationError if
        the database has another schema.
        """
        try:
            self._database.check_schema()
            with self._database.session() as session:
                self._last = read_snapshot(session)
        except ControlUnavailable:
            kept = self._keeper.read() if self._keeper is not None else None
            if kept is None:
                raise
            self.kept_age_seconds = kept.age_seconds
            return kept.snapshot
        self._keep(self._last.snapshot)
        return self._last.snapshot

    def may_have_changed(self) -> bool:
        """Return whether a poll could find changes. For PostgreSQL always True: only the database knows."""
        return self._look.may_have_changed()

    def poll(self, known_revision: int) -> Snapshot | None:
        """Return a newer snapshot, or `None` if there is none. Blocks, so call it from a thread.

        After a failure everything is read again: the database may have been restored from a backup meanwhile, and its
        revision numbers may then belong to another history.
        """
        try:
            with self._look.reading(), self._database.session() as session:
                revision = read_revision(session)
                self._has_answered = True
                if revision == known_revision and self._last is not None:
                    self._was_away = False
                    self._keep(None)
                    return None
                last = self._last
                is_known = last is not None and last.snapshot.revision == known_revision and not self._was_away
                self._last = read_snapshot(session, last, is_whole=not is_known)
        except Exception:
            self._was_away = True
            raise
        finally:
            self._has_answered = False
        self._was_away = False
        self._keep(self._last.snapshot)
        return self._last.snapshot

    def _keep(self, newer: Snapshot | None) -> None:
        if self._keeper is not None:
            if newer is not None:
                self._keeper.keep(newer)
            self._keeper.seen()

    def close(self) -> None:
        """Close the database connections."""
        self._database.close()
