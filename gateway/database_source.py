"""Snapshots from the control-plane database."""

from backends.control.database import ControlDatabase
from backends.control.snapshot import load_snapshot, read_revision
from contracts.configuration import Snapshot


class DatabaseSource:
    """Polls the revision; loads the whole only when it has moved."""

    def __init__(self, url: str) -> None:
        self._database = ControlDatabase(url)

    def load(self) -> Snapshot:
        """Read everything once. Raises ControlUnavailable, or ConfigurationError for another schema."""
        self._database.check_schema()
        with self._database.session() as session:
            return load_snapshot(session)

    def poll(self, known_revision: int) -> Snapshot | None:
        """Give a newer snapshot, or `None`. Blocks; called from a thread."""
        with self._database.session() as session:
            if read_revision(session) == known_revision:
                return None
            return load_snapshot(session)
