"""A gateway that stood still for longer than its time limits: what arrived meanwhile counts, and no request fails."""

import asyncio
import os
import signal
import time

import pytest

from bench.fleet.connection import Connection
from bench.fleet.gateway import GatewayProcess
from bench.fleet.redis_server import RedisServer

LIMIT_SECONDS = 1.0  # of each time limit below
PAUSE_SECONDS = 1.6
TENANTS = 6
AT_ONCE = 12


@pytest.fixture
async def start(tmp_path):
    started = []

    async def begin(config, redis_url="", **environment):
        gateway = GatewayProcess("gw", tmp_path, config, redis_url, environment)
        started.append(gateway)
        await gateway.start()
        return gateway

    yield begin
    for gateway in started:
        gateway.kill()


def pause(gateway) -> None:
    os.kill(gateway.process_id, signal.SIGSTOP)
    os.waitid(os.P_PID, gateway.process_id, os.WSTOPPED | os.WNOWAIT)


def go_on(gateway) -> None:
    os.kill(gateway.process_id, signal.SIGCONT)


def limited(kit, upstream):
    """One pool for each kind of time limit, each of a second."""
    pools = {
        "first_token": {"failures": {"first_token_seconds": LIMIT_SECONDS, "breaker": None}},
        "between_tokens": {"failures": {"between_tokens_seconds": LIMIT_SECONDS, "breaker": None}},
        "whole_answer": {"failures": {"whole_answer_seconds": LIMIT_SECONDS, "breaker": None}},
        "total": {"failures": {"total_seconds": LIMIT_SECONDS, "breaker": None}},
        "silence": {"failures": {"breaker": None}},
        "queue": {"queue": {"max_in_flight": 1, "deadline_seconds": {"standard": LIMIT_SECONDS}}},
    }
    targets = {name: kit.http_target(upstream.url) for name in pools}
    targets["silence"] = kit.http_target(upstream.url, timeouts={"first_byte": LIMIT_SECONDS})
    config = kit.configuration(*[(name, [targets[name]]) for name in pools])
    for pool in config["pools"]:
        pool.update(pools[pool["name"]])
    return config, list(pools)


async def test_what_arrived_while_the_gateway_stood_still_is_read_before_a_time_limit_ends(
    start, kit, upstream, eventually
):
    config, pools = limited(kit, upstream)
    gateway = await start(config, TOLLKEEPER_IDLE_SECONDS=str(LIMIT_SECONDS))
    is_paused = asyncio.Event()
    ends = upstream.piece(upstream.chunk("there")) + upstream.piece(upstream.chunk(finish="stop"))
    ends += upstream.piece(upstream.event(b"[DONE]")) + upstream.END

    def script(request):
        if not request.json.get("stream"):
            return (is_paused, upstream.whole(upstream.completion()))
        if request.json["model"] == "between_tokens":
            return (upstream.stream_head() + upstream.piece(upstream.chunk("Hi")), is_paused, ends)
        return (is_paused, upstream.stream_head() + ends)

    upstream.answering(script)
    names = [*pools, "queue"]  # the second waits for the first
    connections = [await Connection.open(gateway.port) for _ in [*names, "idle"]]
    tasks = []
    for name, connection in zip(names, connections, strict=False):
        request = kit.request(model=name, stream=name in ("first_token", "between_tokens"))
        tasks.append(asyncio.create_task(connection.ask(request)))
    await eventually(lambda: len(upstream.requests) == len(pools))
    pause(gateway)
    is_paused.set()
    tasks.append(asyncio.create_task(connections[-1].ask(kit.request(model="silence"))))  # on one that idled
    await asyncio.sleep(PAUSE_SECONDS)
    go_on(gateway)
    answers = dict(zip([*names[:-1], "waited", "idle"], await asyncio.gather(*tasks), strict=True))
    assert {name: answer.status for name, answer in answers.items()} == dict.fromkeys(answers, 200)
    assert [answers[name].finish_reason for name in ("first_token", "between_tokens")] == ["stop", "stop"]
    for connection in connections:
        connection.close()


@pytest.mark.service
async def test_no_request_is_refused_if_the_gateway_stood_still_while_redis_answered(start, kit, require_service):
    require_service("redis-server", RedisServer.is_installed(), "apt-get install redis-server")
    tenants = [f"t{number}" for number in range(TENANTS)]
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    config["keys"] = [
        {"key": f"tk-{number}" + "A" * 42, "tenant": tenant, "id": f"key_{tenant}"}
        for number, tenant in enumerate(tenants)
    ]
    config["limits"] = [
        {"tenant": tenant, "level": "tenant", "metric": metric, "window": "minute", "amount": amount}
        for tenant in tenants
        for metric, amount in (("requests", 2 * AT_ONCE), ("tokens", 100_000))
    ]
    config["budgets"] = [
        {"tenant": tenant, "level": "tenant", "period": "month", "amount_usd": "100"} for tenant in tenants
    ]
    with RedisServer() as redis:
        gateway = await start(config, redis.url)
        connections = [await Connection.open(gateway.port) for _ in range(AT_ONCE)]
        for key in config["keys"]:
            headers = {"Authorization": f"Bearer {key['key']}"}
            redis.freeze()
            began = time.monotonic()
            tasks = [asyncio.create_task(connection.ask(kit.request(headers=headers))) for connection in connections]
            await asyncio.sleep(0.04)  # nothing is leased to this tenant: all of them now wait for Redis
            pause(gateway)
            waited = time.monotonic() - began
            redis.go_on()
            await asyncio.sleep(0.5)
            go_on(gateway)
            statuses = [answer.status for answer in await asyncio.gather(*tasks)]
            if waited < 0.15:  # otherwise it was this test that stood still, and Redis was silent for too long
                break
        else:
            pytest.fail("this machine stood still in every round")
        assert statuses == [200] * AT_ONCE
        assert "shared counters" not in gateway.log()
        for connection in connections:
            connection.close()
