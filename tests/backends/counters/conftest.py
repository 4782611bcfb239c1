"""A Redis server that the tests of this folder share."""

from collections.abc import Callable, Iterator

import pytest

from tests.backends.counters.redis_server import RedisServer


@pytest.fixture(scope="session")
def redis_server(require_service: Callable[[str, bool, str], None]) -> Iterator[RedisServer]:
    require_service("redis-server", RedisServer.is_installed(), "apt-get install redis-server")
    server = RedisServer()
    try:
        server.start()
        yield server
    finally:
        server.close()
