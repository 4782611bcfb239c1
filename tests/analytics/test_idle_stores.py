"""Clients of the store are lent and given back: no more than were wanted at once, however many threads ask."""

from threading import Thread

from analytics.api.store import IdleStores
from backends.store.address import StoreAddress
from backends.store.client import StoreClient


def test_as_many_clients_are_made_as_are_wanted_at_once() -> None:
    stores = IdleStores(StoreAddress("http://127.0.0.1:1", "tollkeeper", "reader", ""))
    seen: list[StoreClient] = []

    def ask() -> None:
        with stores.lent() as client:
            seen.append(client)

    for _ in range(20):  # one after the other, each in a thread of its own, as a server's pool has them
        thread = Thread(target=ask)
        thread.start()
        thread.join()
    assert len(seen) == 20 and len(set(map(id, seen))) == 1
    with stores.lent() as one, stores.lent() as other:
        assert one is not other, "a client serves one thread at a time"
    stores.close()
