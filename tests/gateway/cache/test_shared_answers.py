"""Kept answers that gateways share in a real Redis: one tenant's alone, bounded, and a miss where Redis is away."""

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import pytest
from redis.asyncio import Redis

from backends.counters.address import CountersAddress
from backends.counters.shared_answers import ANSWER_SECONDS, SharedAnswers
from tests.backends.counters.redis_server import RedisServer

pytestmark = pytest.mark.service
OTHER_KEY = "tk-" + "B" * 43
PATIENCE_SECONDS = 20.0  # for Redis on a busy machine
SECOND_NS = 1_000_000_000


@pytest.fixture(scope="module")
def server(require_service: Callable[[str, bool, str], None]) -> Iterator[RedisServer]:
    require_service("redis-server", RedisServer.is_installed(), "apt install redis-server")
    server = RedisServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
async def redis(server: RedisServer) -> AsyncIterator[Redis]:
    client = Redis(unix_socket_path=str(server.socket))
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
async def share(server: RedisServer) -> AsyncIterator[Callable[..., SharedAnswers]]:
    made: list[SharedAnswers] = []

    def make(secret: bytes = b"s" * 32, bound: int = 1 << 20, url: str = "") -> SharedAnswers:
        seconds = PATIENCE_SECONDS if not url else ANSWER_SECONDS
        made.append(SharedAnswers(CountersAddress(url or server.url), secret, bound, answer_seconds=seconds))
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def sent(answers: SharedAnswers) -> None:
    """Wait until what was put is in Redis."""
    while answers._pump is not None and not answers._pump.done():
        await asyncio.sleep(0.001)


@pytest.fixture
def two_gateways(start_gateway, kit, upstream, server, redis, tmp_path, monkeypatch):
    patient = partial(SharedAnswers, answer_seconds=PATIENCE_SECONDS)
    monkeypatch.setattr("backends.counters.shared_answers.SharedAnswers", patient)

    async def start(count=2, **settings):
        upstream.always(upstream.whole(upstream.completion(prompt=1000, output=500)))
        config = kit.configuration(("m", [kit.http_target(upstream.url)]))
        config["models"][0]["cache"] = {"mode": "exact", "ttl_seconds": 60}
        config["keys"].append({"key": OTHER_KEY, "tenant": "globex", "id": "key_2"})
        running = []
        for number in range(count):
            if number:
                shutil.copytree(tmp_path / "data0" / "secrets", tmp_path / f"data{number}" / "secrets")
            given = {"answer_cache_redis_url": server.url, "gateway_name": f"g{number}", **settings}
            running.append(await start_gateway(config, data=tmp_path / f"data{number}", **given))
        return running

    return start


def shared(gateway):
    return {k.removeprefix("shared_"): v for k, v in gateway.gateway.health()["answer_cache"].items() if "shared" in k}


async def test_another_gateway_gives_the_answer_to_the_same_tenant_alone(two_gateways, upstream, redis):
    first, second = await two_gateways()
    made = await first.chat(model="m")
    await sent(first.gateway._answers._shared)
    again = await second.chat(model="m")
    assert (again.headers["x-cache"], again.body, int(again.headers["age"]) < 30) == ("hit", made.body, True)
    (record,) = second.requests()
    assert (record.cache, record.cost_pico_usd, record.price_version) == ("hit", 0, "t/1#hit")
    other = {"Authorization": f"Bearer {OTHER_KEY}"}
    assert (await second.chat(headers=other, model="m")).headers["x-cache"] == "miss"
    assert len(upstream.requests) == 2
    assert (await second.chat(model="m")).headers["x-cache"] == "hit" and shared(second)["hits"] == 1, "it is here now"
    kept = b"".join([key + (await redis.dump(key) or b"") for key in await redis.keys("*")])
    assert b"acme" not in kept and json.loads(made.body)["choices"][0]["message"]["content"].encode() not in kept


async def test_requests_that_come_at_once_are_answered_by_one_look(two_gateways, upstream):
    first, second = await two_gateways()
    await first.chat(model="m")
    await sent(first.gateway._answers._shared)
    answers = await asyncio.gather(*(second.chat(model="m") for _ in range(5)))
    assert [answer.headers["x-cache"] for answer in answers] == ["hit"] * 5
    assert len(upstream.requests) == 1 and shared(second)["hits"] == 1


async def test_an_answer_outlives_its_gateway_and_no_cache_asks_the_model(two_gateways, upstream, start_gateway):
    first, second = await two_gateways()
    await first.chat(model="m")
    await first.close()
    asked = await second.chat(headers={"Cache-Control": "no-cache"}, model="m")
    assert asked.headers["x-cache"] == "miss" and len(upstream.requests) == 2
    assert (await second.chat(model="m")).headers["x-cache"] == "hit"


async def test_a_request_to_a_gateway_whose_redis_is_away_goes_to_the_model(two_gateways, upstream, tmp_path):
    (gateway,) = await two_gateways(1, answer_cache_redis_url=f"unix://{tmp_path}/nobody.sock")
    assert (await gateway.chat(model="m")).headers["x-cache"] == "miss"
    assert (await gateway.chat(model="m")).headers["x-cache"] == "hit", "its own answers are still there"
    assert shared(gateway) == {"hits": 0, "misses": 0, "unreadable": 0, "failures": 1, "sent": 0, "dropped": 1}


async def test_a_redis_that_hangs_is_waited_for_once(share, tmp_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "hung.sock"))
    listener.listen()
    answers = share(url=f"unix://{tmp_path}/hung.sock")
    assert await answers.get("acme", b"k") is None and answers.is_away
    answers.put("acme", b"k", b"answer", SECOND_NS)
    assert await answers.get("acme", b"k") is None
    assert (answers.counts.failures, answers.counts.dropped, answers.counts.sent) == (1, 1, 0)
    listener.close()


async def test_redis_is_asked_again_a_second_after_a_failure(server, redis):
    clock = [0.0]
    address = CountersAddress(server.url)
    answers = SharedAnswers(address, b"s", 1 << 20, answer_seconds=PATIENCE_SECONDS, monotonic=lambda: clock[0])
    await redis.set(f"{answers._tenant('acme').prefix}ends", "of another kind")
    answers.put("acme", b"k", b"answer", SECOND_NS)
    await sent(answers)
    assert answers.is_away and answers.counts.failures == 1
    seen = []
    for clock[0] in (0.999, 1.0):
        seen.append(answers.is_away)
    assert seen == [True, False] and await answers.get("acme", b"k") is None
    await answers.close()


async def test_each_outage_is_logged_once_and_its_end_too(server, redis, caplog):
    caplog.set_level("INFO", logger="backends.counters.shared_answers")
    clock = [0.0]
    address = CountersAddress(server.url)
    answers = SharedAnswers(address, b"s", 1 << 20, answer_seconds=PATIENCE_SECONDS, monotonic=lambda: clock[0])
    ends = f"{answers._tenant('acme').prefix}ends"
    for _ in range(2):
        await redis.set(ends, "of another kind")
        for _ in range(3):
            answers.put("acme", b"k", b"answer", SECOND_NS)
            await sent(answers)
            clock[0] += 2.0
        await redis.delete(ends)
        for _ in range(2):
            answers.put("acme", b"k", b"answer", SECOND_NS)
            await sent(answers)
    assert answers.counts.failures == 6
    assert [record.getMessage() for record in caplog.records] == ["answers_not_shared", "answers_shared_again"] * 2
    await answers.close()


async def test_an_answer_that_was_moved_to_another_key_or_tenant_is_not_given(share, redis):
    answers = share()
    answers.put("acme", b"one", b"answer", 60 * SECOND_NS)
    answers.put("globex", b"one", b"other", 60 * SECOND_NS)
    await sent(answers)
    ours, theirs = (f"{answers._tenant(tenant).prefix}a:" for tenant in ("acme", "globex"))
    await redis.copy(ours + b"one".hex(), ours + b"two".hex())
    await redis.copy(ours + b"one".hex(), theirs + b"one".hex(), replace=True)
    assert await answers.get("acme", b"two") is None and await answers.get("globex", b"one") is None
    found = await answers.get("acme", b"one")
    assert found is not None and found.packed == b"answer" and found.ttl_ns == 60 * SECOND_NS
    assert await share(secret=b"another").get("acme", b"one") is None
    assert (answers.counts.hits, answers.counts.unreadable) == (1, 2)


async def test_each_tenant_has_its_bound_and_what_ends_first_goes_first(share, redis):
    size = 1000 + 200 + 12 + 8 + 16  # the answer, its entry, nonce, time and check
    answers = share(bound=3 * size)
    answers.put("globex", b"theirs", b"x" * 1000, 10 * SECOND_NS)
    for name, seconds in ((b"a", 30), (b"b", 10), (b"c", 20)):
        answers.put("acme", name, b"x" * 1000, seconds * SECOND_NS)
    answers.put("acme", b"too large", b"x" * (3 * size), 90 * SECOND_NS)
    await sent(answers)
    here = [name for name in (b"a", b"b", b"c", b"too large") if await answers.get("acme", name)]
    assert here == [b"a", b"b", b"c"], "at the bound"
    answers.put("acme", b"d", b"x" * 1000, 5 * SECOND_NS)
    answers.put("acme", b"a", b"y" * 1000, 30 * SECOND_NS)
    await sent(answers)
    here = [name for name in (b"a", b"b", b"c", b"d") if await answers.get("acme", name)]
    assert here == [b"a", b"c", b"d"] and await answers.get("globex", b"theirs")
    prefix = answers._tenant("acme").prefix
    assert int(await redis.hget(f"{prefix}sizes", "")) == 3 * size == 3 * int(await redis.hget(f"{prefix}sizes", "61"))


async def test_nothing_stays_longer_than_it_may_be_given(share, redis):
    answers = share()
    answers.put("acme", b"brief", b"answer", SECOND_NS // 20)
    await sent(answers)
    deadline = asyncio.get_running_loop().time() + 10
    while await redis.keys("*"):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
    assert await answers.get("acme", b"brief") is None and answers.counts.misses == 1


async def test_what_has_ended_frees_its_room_before_anything_is_dropped(share, redis):
    answers = share(bound=2500)
    answers.put("acme", b"long", b"x" * 1000, 60 * SECOND_NS)
    answers.put("acme", b"brief", b"x" * 1000, SECOND_NS // 20)
    await sent(answers)
    await asyncio.sleep(0.06)
    answers.put("acme", b"new", b"x" * 1000, 60 * SECOND_NS)
    await sent(answers)
    assert [bool(await answers.get("acme", name)) for name in (b"long", b"brief", b"new")] == [True, False, True]
