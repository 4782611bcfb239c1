"""The store and the control database as handlers get them: a store's client serves one thread at a time."""

import threading
from typing import Annotated

from fastapi import Depends, Request

from backends.control.database import ControlDatabase
from backends.store.address import StoreAddress
from backends.store.client import StoreClient


class ThreadStores:
    """A client for each thread that asks, all closed together."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._local = threading.local()
        self._lock = threading.Lock()
        self._clients: list[StoreClient] = []

    def client(self) -> StoreClient:
        """Give this thread's client."""
        found: StoreClient | None = getattr(self._local, "client", None)
        if found is None:
            found = StoreClient(self._address)
            self._local.client = found
            with self._lock:
                self._clients.append(found)
        return found

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for client in self._clients:
                client.close()


def _store(request: Request) -> StoreClient:
    stores: ThreadStores = request.app.state.stores
    return stores.client()


def _database(request: Request) -> ControlDatabase:
    database: ControlDatabase = request.app.state.database
    return database


Store = Annotated[StoreClient, Depends(_store)]
Database = Annotated[ControlDatabase, Depends(_database)]
