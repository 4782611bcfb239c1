"""The store of files, opened at its first use."""

import asyncio
from typing import TYPE_CHECKING

from gateway.apis.files.lazy_objects_database import LazyObjectsDatabase

if TYPE_CHECKING:
    from backends.objects.files import FileStore


class LazyFileStore:
    """Opens the store at first use."""

    def __init__(self, kept: LazyObjectsDatabase) -> None:
        self._kept = kept
        self._store: FileStore | None = None

    async def store(self) -> "FileStore":
        """Return the store. Raises ConfigurationError if the database's URL is unusable."""
        if self._store is None:
            # In a thread: SQLAlchemy takes a third of a second to import, which other requests must not wait for.
            found = await asyncio.to_thread(self._open)
            self._store = self._store or found
        return self._store

    def _open(self) -> "FileStore":
        database = self._kept.database()
        from backends.objects.files import FileStore  # here: edge deployments do without SQLAlchemy

        return FileStore(database)
