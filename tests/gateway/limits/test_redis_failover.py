"""Limits and budgets while the primary of a Redis Cluster, or one that Sentinels watch, is killed or frozen."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.crc import key_slot
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from backends.counters.address import CountersAddress
from backends.counters.primary import Primary
from backends.network.tls import TlsFiles
from bench.fleet.failover import FailoverLoad, How
from contracts.errors import CountersUnavailable
from gateway.limits.counters.base import Shortage
from gateway.limits.counters.redis_store import RedisStore
from tests.backends.counters.redis_fleet import (
    RedisCluster,
    RedisFleet,
    RedisNode,
    WatchedRedis,
    folder_of_fleet,
    hosts,
    running,
)
from tests.backends.counters.redis_server import RedisServer, happens
from tests.certificates import Authority
from tests.gateway.limits.counting import budget
from tests.ports import find_free_ports

pytestmark = pytest.mark.service

NAMESPACE = "failover"
AMOUNT = 300


@pytest.fixture(scope="module")
def folder(require_service) -> Iterator[Path]:
    require_service("redis-server", RedisServer.is_installed(), "apt-get install redis-server")
    with folder_of_fleet() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[RedisCluster]:
    with running(RedisCluster(folder, NAMESPACE)) as started:
        yield started


@pytest.fixture(scope="module")
def watched(folder: Path) -> Iterator[WatchedRedis]:
    with running(WatchedRedis(folder)) as started:
        yield started


@pytest.fixture(params=["cluster", "watched"])
def fleet(request: pytest.FixtureRequest) -> RedisFleet:
    found: RedisFleet = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.drill
async def test_a_primary_that_is_lost_under_load_lets_nothing_exceed_its_amount(fleet: RedisFleet, how: How):
    load = FailoverLoad(
        CountersAddress(fleet.url),
        NAMESPACE,
        how,
        amount=AMOUNT,
        gateways=3,
        pause_seconds=0.05,
        timeout_seconds=1.0,  # a busy machine is not what is tested
    )
    await load.start()
    try:
        await load.until(lambda: load.taken >= AMOUNT // 6, "a sixth of it being taken")
        print(how, await load.lose(fleet, how))
        load.takes_until = 2 * AMOUNT
        await load.until(lambda: load.taken >= AMOUNT * 0.97, "the rest of it being taken")
        await asyncio.sleep(1.0)  # it would go on if anything allowed it
        assert load.taken <= AMOUNT
        for _ in range(600):
            if len(found := await asyncio.to_thread(fleet.replicas)) == 2:  # the former primary is one of them
                break
            await asyncio.sleep(0.1)
        assert len(found) == 2
    finally:
        await load.close()


async def test_nothing_is_granted_that_no_replica_confirms(fleet: RedisFleet):
    store = RedisStore(CountersAddress(fleet.url), "unconfirmed", namespace=NAMESPACE)
    primary = fleet.primary()
    assert primary is not None
    with primary.client() as client:
        facts = client.info("replication")
    ports = [value["port"] for key, value in facts.items() if key.startswith("slave") and isinstance(value, dict)]
    replicas = [node for node in fleet.nodes if node.port in ports]
    assert len(replicas) == 2
    running_store = asyncio.create_task(store.run())
    try:
        await store.start()
        counter = store.open(budget(100), "")
        for node in replicas:
            node.freeze()
        shortage = await store.seek_room([(counter, 10)], "", time.time_ns())
        assert isinstance(shortage, Shortage)
        assert counter.room(time.time_ns(), "") == 0
    finally:
        for node in replicas:
            node.go_on()
        await happens(lambda: not store._link.is_away, "coming back")
        running_store.cancel()
        await store.close()
    assert fleet.primary() is not None


async def test_a_node_that_does_not_serve_the_slot_leads_to_the_one_that_does(cluster: RedisCluster):
    owner = cluster.primary()
    assert owner is not None
    for node in cluster.nodes:
        primary = Primary(CountersAddress(f"redis://{node.host}"), NAMESPACE, 2.0)
        assert await primary.call([("SET", f"{{{NAMESPACE}}}:moved", node.port)]) == [True]
        assert primary.at == ("127.0.0.1", owner.port)
        await primary.close()


async def test_a_slot_that_is_on_its_way_is_followed(cluster: RedisCluster):
    tags = (f"t{number}" for number in range(10_000))
    tag = next(tag for tag in tags if abs(key_slot(tag.encode()) - cluster.slot) > 100)
    slot, held, new = key_slot(tag.encode()), f"{{{tag}}}:held", f"{{{tag}}}:new"
    address = CountersAddress(cluster.url)
    primary = Primary(address, tag, 2.0)
    await primary.call([("SET", held, "1")])
    owners = [node for node in cluster.nodes if (node.port,) == (primary.at or ("", 0))[1:]]
    other = next(node for node in cluster.primaries() if node.port != owners[0].port)
    with owners[0].client() as source, other.client() as target:
        source_id, target_id = source.execute_command("CLUSTER MYID"), target.execute_command("CLUSTER MYID")
        target.execute_command(f"CLUSTER SETSLOT {slot} IMPORTING {source_id}")
        source.execute_command(f"CLUSTER SETSLOT {slot} MIGRATING {target_id}")
        assert await primary.call([("GET", held)]) == [b"1"], "what has not moved is answered where it is"
        assert await primary.call([("SET", new, "2"), ("GET", new)]) == [True, b"2"], "what is new is asked for there"
        assert source.execute_command("CLUSTER COUNTKEYSINSLOT", slot) == 1
        source.execute_command(f"MIGRATE 127.0.0.1 {other.port} {held} 0 5000")
        for client in (target, source):
            client.execute_command(f"CLUSTER SETSLOT {slot} NODE {target_id}")
        assert await primary.call([("MGET", held, new)]) == [[b"1", b"2"]]
        assert primary.at == ("127.0.0.1", other.port)
    await primary.close()


async def test_a_node_of_another_cluster_is_named(
    cluster: RedisCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.counters.primary._FIND_SECONDS", 20.0)  # for a node that has no core yet
    port, bus = find_free_ports(2)
    foreign = RedisNode(folder, port, "--cluster-enabled", "yes", "--cluster-port", str(bus))
    foreign.start()
    one_of_ours = cluster.url.partition(",")[0]  # of two nodes the answers of both are waited for
    primary = Primary(CountersAddress(f"{one_of_ours},{foreign.host}"), NAMESPACE, 2.0)
    try:
        with pytest.raises(CountersUnavailable, match=f"take out 127.0.0.1:{port}"):
            await primary.call([("GET", f"{{{NAMESPACE}}}:x")])
    finally:
        await primary.close()
        foreign.close()


async def test_servers_that_are_no_cluster_and_sentinels_that_know_no_such_primary_are_told(watched: WatchedRedis):
    plain = Primary(CountersAddress(f"redis://{hosts(watched.nodes)}"), NAMESPACE, 2.0)
    with pytest.raises(CountersUnavailable, match="no Redis Cluster"):
        await plain.call([("GET", "x")])
    unknown = Primary(CountersAddress(f"redis+sentinel://{hosts(watched.sentinels)}/other"), NAMESPACE, 2.0)
    with pytest.raises(CountersUnavailable, match="'other'"):
        await unknown.call([("GET", "x")])
    await plain.close()
    await unknown.close()


async def test_sentinels_with_a_password_of_their_own(folder: Path):
    """One Sentinel is enough to be asked; its password is not the server's."""
    port, watching = find_free_ports(2)
    node = RedisNode(folder, port)
    config = f"sentinel monitor main 127.0.0.1 {port} 1\nsentinel auth-pass main of-the-server\n"
    sentinel = RedisNode(folder, watching, "--sentinel", config=config)
    try:
        node.start()
        with node.client() as client:
            client.config_set("requirepass", "of-the-server")
        sentinel.start()
        with sentinel.client() as client:
            client.execute_command("ACL", "SETUSER", "asking", "on", ">of the asker", "+@all")
            client.execute_command("ACL", "SETUSER", "default", ">of the sentinel")
        url = f"redis+sentinel://:of-the-server@127.0.0.1:{watching}/main"
        for user, password in (("", "of the sentinel"), ("asking", "of the asker")):
            address = CountersAddress(url, 0, sentinel_user=user, sentinel_password=password)
            known = Primary(address, NAMESPACE, 2.0)
            assert await known.call([("GET", "nothing")]) == [None]
            assert known.at == ("127.0.0.1", port)
            await known.close()
        for wrong in ("", "of-the-server"):
            refused = Primary(CountersAddress(url, 0, sentinel_password=wrong), NAMESPACE, 2.0)
            with pytest.raises((AuthenticationError, CountersUnavailable)):
                await refused.call([("PING",)])
            await refused.close()
    finally:
        sentinel.close()
        node.close()


async def test_redis_is_reached_by_tls_and_shown_a_certificate(folder: Path, tmp_path: Path):
    authority = Authority(tmp_path)
    server, client = authority.issue("server"), authority.issue("client")
    port, plain = find_free_ports(2)
    node = RedisNode(
        folder, plain, "--tls-port", str(port), "--tls-cert-file", str(server.certificate), "--tls-key-file",
        str(server.key), "--tls-ca-cert-file", str(authority.path),
    )  # fmt: skip
    node.start()
    url = f"rediss://127.0.0.1:{port}/0"
    try:
        good = Primary(CountersAddress(url, tls=TlsFiles(client.certificate, client.key, authority.path)), "t", 2.0)
        assert await good.call([("SET", "{t}", "1"), ("GET", "{t}")]) == [True, b"1"]
        await good.close()
        for files in (TlsFiles(client.certificate, client.key, None), TlsFiles(None, None, authority.path)):
            refused = Primary(CountersAddress(url, tls=files), "t", 2.0)
            with pytest.raises((RedisConnectionError, OSError)):
                await refused.call([("GET", "{t}")])
            await refused.close()
    finally:
        node.close()
