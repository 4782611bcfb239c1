"""The one database of objects that applications store at this gateway, opened at its first use."""

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from contracts.errors import ObjectsUnavailable

if TYPE_CHECKING:
    from backends.objects.database import ObjectsDatabase

_SQLITE_FILE: Final = "sqlite:///"


class LazyObjectsDatabase:
    """Opens the database at its first use. A gateway whose applications store nothing never loads SQLAlchemy."""

    def __init__(self, url: str) -> None:
        """Accept the database's SQLAlchemy URL. It is validated at first use."""
        self._url = url
        self._database: ObjectsDatabase | None = None
        self._opening = Lock()

    @property
    def is_open(self) -> bool:
        """Return whether the database has been opened."""
        return self._database is not None

    @property
    def holds_anything(self) -> bool:
        """Return whether there may be stored objects, including ones from before the start. Background jobs check this
        first.
        """
        if self._database is not None or not self._url.startswith(_SQLITE_FILE):
            return True
        return Path(self._url.removeprefix(_SQLITE_FILE)).exists()

    def database(self) -> "ObjectsDatabase":
        """Return the database. May be called in any thread. Raises ConfigurationError on an unusable URL, or
        ObjectsUnavailable.
        """
        with self._opening:
            if self._database is None:
                try:
                    # Here: edge deployments do without SQLAlchemy.
                    from backends.objects.tables import open_objects
                except ImportError as error:
                    raise ObjectsUnavailable(
                        f"this gateway cannot store objects: the Python package {error.name!r} is not installed"
                    ) from error
                self._database = open_objects(self._url)
            return self._database

    async def close(self) -> None:
        """Wait for running calls and close every connection; do nothing if none was opened."""
        if self._database is not None:
            await self._database.close()
            self._database = None
