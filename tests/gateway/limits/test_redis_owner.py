"""A Redis server counts for one installation: gateways of another refuse it."""

import pytest
from redis import Redis

from backends.counters.address import CountersAddress
from contracts.errors import ConfigurationError
from gateway.limits.counters.redis_store import RedisStore
from tests.backends.counters.redis_server import RedisServer

pytestmark = pytest.mark.service


def store_of(server: RedisServer, namespace: str, installation: str, name: str, url: str = "") -> RedisStore:
    address = CountersAddress(url or server.url, installation=installation)
    return RedisStore(address, name, namespace=namespace, timeout_seconds=2.0)


async def test_gateways_of_another_installation_do_not_start_and_count_nothing(redis_server: RedisServer) -> None:
    namespace = redis_server.namespace()
    ours, others = (store_of(redis_server, namespace, name, name) for name in ("first", "second"))
    await ours.start()
    with pytest.raises(ConfigurationError, match=r"counts for another installation \(first; this one is second\)"):
        await others.start()
    await others.close()
    with Redis.from_url(redis_server.url) as client:
        key = f"tollkeeper:{{{namespace}}}:gateways"
        assert set(client.hkeys(key)) == {b"first"}, "the other has not even joined"
        assert client.get(f"tollkeeper:{{{namespace}}}:installation") == b"first"
    assert ours.status()["reachable"] is True
    same = store_of(redis_server, namespace, "first", "another-gateway")
    unknown = store_of(redis_server, namespace, "", "of-a-file")
    for store in (same, unknown):
        await store.start()
        assert store.status()["reachable"] is True
    for store in (ours, same, unknown):
        await store.close()


async def test_a_user_who_may_not_read_the_key_counts_as_before(redis_server: RedisServer) -> None:
    namespace = redis_server.namespace()
    with Redis.from_url(redis_server.url) as client:
        client.execute_command("ACL", "SETUSER", "counting", "on", ">secret", "~*", "+@all", "-get")
        limited = store_of(
            redis_server, namespace, "first", "one", redis_server.url.replace("redis://", "redis://counting:secret@")
        )
        await limited.start()
        assert limited.status()["reachable"] is True
        await limited.close()
        client.execute_command("ACL", "DELUSER", "counting")
