"""Dependencies of handlers: pooled store clients, and the control database."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, Request

from backends.control.database import ControlDatabase
from backends.store.address import StoreAddress
from backends.store.client import StoreClient


class IdleStores:
    """A pool of store clients, each used by one request at a time.

    Not one per thread: server threads come and go, and their clients' connections would accumulate.
    """

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._idle: list[StoreClient] = []

    @contextmanager
    def lent(self) -> Iterator[StoreClient]:
        """Provide a client in a `with` block: the last one returned to the pool, or a new one if all are in use."""
        with self._lock:
            client = self._idle.pop() if self._idle else StoreClient(self._address)
        try:
            yield client
        finally:
            with self._lock:
                self._idle.append(client)

    def close(self) -> None:
        """Close the connections of clients that are not in use."""
        with self._lock:
            for client in self._idle:
                client.close()
            self._idle.clear()


def _store(request: Request) -> Iterator[StoreClient]:
    stores: IdleStores = request.app.state.stores
    with stores.lent() as client:
        yield client


def _database(request: Request) -> ControlDatabase:
    database: ControlDatabase = request.app.state.database
    return database


Store = Annotated[StoreClient, Depends(_store)]
Database = Annotated[ControlDatabase, Depends(_database)]
