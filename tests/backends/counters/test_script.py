"""The script that counts, run as gateways run it: each batch once, exact to the last unit."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from backends.counters.address import CountersAddress
from backends.counters.amounts import deltas, joined, split
from backends.counters.connection import CountersConnection, batch_script
from contracts.errors import CountersUnavailable
from tests.backends.counters.redis_server import RedisServer

pytestmark = pytest.mark.service

NOW_US = 1_773_480_413_589_793


class Gateway:
    """What sends batches by hand."""

    def __init__(self, connection: CountersConnection, name: str, prefix: str) -> None:
        self._connection, self._name, self.prefix = connection, name, prefix
        self._life = self.data = ""
        self.sequence = self.answered = 0
        self.fears_promotion = False

    def batch(self, items: list) -> bytes:
        self.sequence += 1
        head = (self._name, f"{self._name}-1", self.sequence, self._life, self.data, 10_000_000, 2_000_000, NOW_US)
        return msgspec.msgpack.encode((*head, items, 0, 0, 0, self.answered, self.fears_promotion))

    async def send(self, payload: bytes) -> list:
        keys = [f"{self.prefix}gateway:{self._name}", f"{self.prefix}gateways", f"{self.prefix}data"]
        reply = await self._connection.run_batch([*keys, f"{self.prefix}window", f"{self.prefix}places"], payload)
        return list(msgspec.msgpack.decode(reply))

    async def join(self) -> None:
        status, _, data, life, *_ = await self.send(self.batch([]))
        assert status == "joined"
        self.take_over(data, life)

    def take_over(self, data: str, life: str) -> None:
        self.data, self._life = data, life


def ask(need: int, amount: int = 100, charges: dict[int, int] | None = None) -> list:
    """Return a request for room in a minute's window."""
    line = [1, 4, 5, split(amount), 60, 1_000_000, 2, 2, 1, deltas(charges or {}), [], split(need), split(0), [], []]
    return [1, "", [line]]


def granted(reply: list) -> int:
    return int(reply[6][0][0])


def used(reply: list) -> int:
    return joined(reply[6][0][3][0][1])


@pytest.fixture
async def gateway(redis_server: RedisServer) -> AsyncIterator[Gateway]:
    connection = CountersConnection(CountersAddress(redis_server.url), 2.0)
    sender = Gateway(connection, "a", f"tollkeeper:{{{redis_server.namespace()}}}:")
    await sender.join()
    yield sender
    await connection.close()


async def test_a_batch_that_comes_again_is_answered_the_same_and_not_done_again(gateway: Gateway):
    payload = gateway.batch([ask(60)])
    first = await gateway.send(payload)
    assert await gateway.send(payload) == first
    assert used(await gateway.send(gateway.batch([ask(0)]))) == 60


async def test_a_batch_that_was_overtaken_is_not_done(gateway: Gateway):
    late = gateway.batch([ask(60)])
    await gateway.send(gateway.batch([ask(10)]))
    assert await gateway.send(late) == ["late"]
    assert used(await gateway.send(gateway.batch([ask(0)]))) == 10


async def test_a_script_that_redis_has_forgotten_is_sent_again(gateway: Gateway, redis_server: RedisServer):
    client = Redis.from_url(redis_server.url)
    await client.script_flush()
    await client.aclose()
    assert used(await gateway.send(gateway.batch([ask(7)]))) == 7


async def test_data_that_do_not_know_an_answered_batch_are_counted_anew(gateway: Gateway, redis_server: RedisServer):
    """As where a replica was promoted that lagged, or a server came back with an old copy of its data."""
    bucket = NOW_US // 1_000_000
    await gateway.send(gateway.batch([ask(0, charges={bucket: 10})]))
    client = Redis.from_url(redis_server.url)
    names = [f"{gateway.prefix}{name}" for name in ("gateway:a", "gateways", "data", "window")]
    copies = [await client.dump(name) or b"" for name in names]
    await gateway.send(gateway.batch([ask(60)]))
    gateway.answered = gateway.sequence
    for name, copy in zip(names, copies, strict=True):
        await client.restore(name, 400_000, copy, replace=True)
    status, _, data, life, _, quiet_us, *_ = await gateway.send(gateway.batch([ask(1)]))
    assert status == "joined" and data != gateway.data, "the data have a new name"
    assert quiet_us == 2_000_000, "nobody is granted anything until all have reported"
    gateway.take_over(data, life)
    gateway.answered = gateway.sequence
    reply = await gateway.send(gateway.batch([ask(0, charges={bucket: 70})]))
    assert used(reply) == 70, "what was counted under the old name is reported again, and not counted twice"
    assert granted(await gateway.send(gateway.batch([ask(1)]))) == 0, "it is still quiet"
    await client.aclose()


async def test_data_that_know_the_last_answer_keep_their_name(gateway: Gateway):
    await gateway.send(gateway.batch([ask(60)]))
    gateway.answered = gateway.sequence
    reply = await gateway.send(gateway.batch([ask(0)]))
    assert reply[0] == "done" and reply[5] == 0 and used(reply) == 60


async def test_a_server_with_another_history_is_quiet_unless_replicas_confirm(
    gateway: Gateway, redis_server: RedisServer
):
    gateway.fears_promotion = True
    assert (await gateway.send(gateway.batch([ask(1)])))[5] == 0
    client = Redis.from_url(redis_server.url)
    await client.hset(f"{gateway.prefix}data", "run", "another")
    gateway.fears_promotion = False
    assert (await gateway.send(gateway.batch([ask(1)])))[5] == 0
    gateway.fears_promotion = True
    reply = await gateway.send(gateway.batch([ask(1)]))
    assert reply[0] == "done" and reply[5] == 3_000_000 and granted(reply) == 0
    await client.aclose()


@pytest.mark.parametrize(
    ("settings", "warns"),
    [
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, True),
        ({"maxmemory": "100mb", "maxmemory-policy": "noeviction"}, False),
        ({"maxmemory": "0", "maxmemory-policy": "allkeys-lru"}, False),
    ],
)
async def test_a_redis_that_may_evict_counters_is_warned_of_once(redis_server: RedisServer, caplog, settings, warns):
    client = Redis.from_url(redis_server.url)
    for name, value in settings.items():
        await client.config_set(name, value)
    connection = CountersConnection(CountersAddress(redis_server.url), 2.0)
    sender = Gateway(connection, "evicted", f"tollkeeper:{{{redis_server.namespace()}}}:")
    await sender.join()
    await sender.send(sender.batch([ask(1)]))
    found = [record for record in caplog.records if "may evict counters" in record.getMessage()]
    assert len(found) == warns
    assert not found or (found[0].policy, found[0].remedy) == ("allkeys-lru", "set maxmemory-policy noeviction")
    await connection.close()
    await client.config_set("maxmemory", "0")
    await client.config_set("maxmemory-policy", "noeviction")
    await client.aclose()


async def test_every_key_has_an_expiry(gateway: Gateway, redis_server: RedisServer):
    item = ask(60, charges={NOW_US // 1_000_000: 3})
    item[1] = "key"
    await gateway.send(gateway.batch([item]))
    await gateway.send(gateway.batch([item]))  # is refused and holds a place
    client = Redis.from_url(redis_server.url)
    keys = await client.keys(f"{gateway.prefix.replace('{', '?').replace('}', '?')}*")
    lives = [await client.ttl(key) for key in keys]
    await client.aclose()
    assert len(keys) == 5
    assert all(life > 0 for life in lives)


async def test_a_redis_that_is_not_there_is_told_without_its_password():
    connection = CountersConnection(CountersAddress("redis://anna:secret@127.0.0.1:1/0"), 0.2)
    with pytest.raises(CountersUnavailable, match="redis://127.0.0.1:1/0 does not answer") as away:
        await connection.run_batch([], b"")
    assert "secret" not in away.value.message
    await connection.close()


def test_an_amount_in_two_parts_is_the_same_amount():
    for amount in (0, 1, 10**9 - 1, 10**9, 10**18 - 1, -1, -(10**18) + 1):
        assert joined(split(amount)) == amount


@given(
    pairs=st.lists(
        st.tuples(st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1), st.integers(1, 500)), min_size=1, max_size=20
    )
)
def test_the_scripts_arithmetic_is_exact(redis_server: RedisServer, pairs):
    source = batch_script()[0].decode()
    arithmetic = source[: source.index("-- Who is there.")]
    program = (
        arithmetic
        + """
    local function shown(h, l) if h < 0 then return '-' .. digits(sub(0, 0, h, l)) end return digits(h, l) end
    local ah, al = parse(ARGV[1])
    local bh, bl = parse(ARGV[2])
    local is_less = less(ah, al, bh, bl) and '1' or '0'
    return { shown(add(ah, al, bh, bl)), shown(sub(ah, al, bh, bl)), shown(min(ah, al, bh, bl)),
        shown(part(ah, al, tonumber(ARGV[3]))), is_less }
    """
    )
    with SyncRedis.from_url(redis_server.url, decode_responses=True) as client:
        for one, other, divisor in pairs:
            found = client.eval(program, 0, one, other, divisor)
            assert [int(each) for each in found] == [
                one + other,
                one - other,
                min(one, other),
                one // divisor,
                one < other,
            ]
