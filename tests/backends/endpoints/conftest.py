"""What tests of readers share: the API server of Kubernetes, and waiting for endpoints."""

from collections.abc import Iterator

import pytest

from backends.endpoints.source import Endpoint
from backends.endpoints.watch import EndpointWatch
from tests.backends.endpoints.api_server import ApiServer
from tests.conftest import poll


@pytest.fixture
def server() -> Iterator[ApiServer]:
    made = ApiServer()
    yield made
    made.close()


def until(watch: EndpointWatch, *wanted: Endpoint) -> None:
    poll(lambda: watch.endpoints == frozenset(wanted), f"{wanted}, found {watch.endpoints}", 10)
