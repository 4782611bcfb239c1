"""Dependencies of handlers: clients of the store, one per thread at a time, and of the control database."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, Request

from backends.control.database import ControlDatabase
from backends.store.address import StoreAddress
from backends.store.client import StoreClient


class IdleStores:
    """Clients of the store, each lent to one request at a time: never more than requests that ran at once.

    By thread they would add up: a server's threads come and go, and a client's connections stay.
    """

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._idle: list[StoreClient] = []

    @contextmanager
    def lent(self) -> Iterator[StoreClient]:
        """Lend a client: the one that was given back last, a new one where all are lent."""
        with self._lock:
            client = self._idle.pop() if self._idle else StoreClient(self._address)
        try:
            yield client
        finally:
            with self._lock:
                self._idle.append(client)

    def close(self) -> None:
        """Close the connections of clients that are not lent."""
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
