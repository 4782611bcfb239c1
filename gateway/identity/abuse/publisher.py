"""Writes abuse incidents to the control-plane database for other processes."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from algorithms.abuse.incident import Incident
from backends.control.abuse_incidents import forget_incidents, of_tenants_that_exist, write_incidents
from backends.control.database import ControlDatabase

_CLEAN_EVERY: Final = timedelta(days=1)
_KEPT_FOR: Final = timedelta(days=400)


class IncidentPublisher:
    """Writes one gateway's incidents. Calls block, so they run in a thread."""

    def __init__(self, url: str) -> None:
        self._database = ControlDatabase(url)
        self._cleaned_at: datetime | None = None

    def publish(self, incidents: Sequence[Incident]) -> None:
        """Write incidents. Raises ControlUnavailable."""
        now = datetime.now(UTC)
        with self._database.session() as session:
            if self._cleaned_at is None or now - self._cleaned_at > _CLEAN_EVERY:
                forget_incidents(session, now - _KEPT_FOR)
                self._cleaned_at = now
            write_incidents(session, of_tenants_that_exist(session, incidents))

    def close(self) -> None:
        """Close the database connections."""
        self._database.close()
