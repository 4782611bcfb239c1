"""The store of batches, opened at the first use, and the dependencies for processing them."""

import asyncio
from typing import TYPE_CHECKING

from gateway.apis.files.lazy_objects_database import LazyObjectsDatabase

if TYPE_CHECKING:
    from backends.objects.batch_work import BatchWork
    from backends.objects.batches import BatchStore


class LazyBatchStore:
    """Opens the store at first use."""

    def __init__(self, kept: LazyObjectsDatabase) -> None:
        self._kept = kept
        self._store: BatchStore | None = None

    async def store(self) -> "BatchStore":
        """Return the store. Raises ConfigurationError if the database's URL is unusable."""
        if self._store is None:
            # In a thread: SQLAlchemy takes a third of a second to import, which other requests must not wait for.
            found = await asyncio.to_thread(self._open)
            self._store = self._store or found
        return self._store

    async def work(self, owner: str) -> "BatchWork":
        """Return the access by which the gateway `owner` claims and runs batches. Raises ConfigurationError if the
        database's URL is unusable.
        """
        return await asyncio.to_thread(self._open_work, owner)

    def _open(self) -> "BatchStore":
        database = self._kept.database()
        from backends.objects.batches import BatchStore  # here: edge deployments do without SQLAlchemy

        return BatchStore(database)

    def _open_work(self, owner: str) -> "BatchWork":
        database = self._kept.database()
        from backends.objects.batch_work import BatchWork  # here: edge deployments do without SQLAlchemy

        return BatchWork(database, owner)
