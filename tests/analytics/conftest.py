"""A reader of the shared store, and a way to put records into it as the collector does."""

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any

import pytest

from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord


@pytest.fixture(scope="session")
def reader(store: Any) -> Iterator[StoreClient]:
    client: StoreClient = store.client("reader")
    yield client
    client.close()


@pytest.fixture(scope="session")
def record(store: Any) -> Iterator[Callable[[Sequence[RequestRecord]], None]]:
    """Provide `record(records)`: one batch through the writer's role, rollups included; the same batch counts once."""
    client: StoreClient = store.client("writer")

    def insert(records: Sequence[RequestRecord]) -> None:
        token = sha256(b"".join(each.request_id for each in records)).hexdigest()
        client.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=token)

    yield insert
    client.close()
