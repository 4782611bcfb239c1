"""The endpoint picker as Envoy meets it: its picks are the router's own, and bad requests are answered."""

import json
import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import yaml

from contracts.api.generation import Result
from gateway.replies.progress import Progress
from gateway.request.clock import Clock
from gateway.routing.picker.pick import ask_of_body, endpoint_of
from gateway.routing.picker.service import PickerService
from gateway.routing.picker.settings import PickerSettings
from gateway.routing.replicas.choice import Placed
from gateway.routing.replicas.router import Router
from tests.gateway.routing.picker.envoy import Exchange, body_of, picked

PICKS = int(os.environ.get("PICKS", "1000"))
REPLICAS = 8
SECOND = 1_000_000_000


class Hands:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100 * SECOND

    def clock(self) -> Clock:
        return Clock(wall_ns=lambda: self.now, monotonic_ns=lambda: self.now)


def configuration(policy: str = "cost", replicas: int = REPLICAS, **target: Any) -> dict[str, Any]:
    targets = [
        {"name": f"r{number}", "kind": "openai_http", "url": f"http://10.0.0.{number}:8000/v1", **target}
        for number in range(1, replicas + 1)
    ]
    return {
        "pools": [{"name": "p", "policy": policy, "targets": targets}],
        "models": [{"name": "m", "pool": "p"}],
    }


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    services: list[PickerService] = []
    channels: list[grpc.aio.Channel] = []

    async def begin(config: dict[str, Any], clock: Clock | None = None, **settings: Any) -> tuple[PickerService, Any]:
        file = tmp_path / "picker.yaml"
        file.write_text(yaml.safe_dump(config))
        service = PickerService(PickerSettings(gateway_config=file, picker_port=0, drain_seconds=0, **settings), clock)
        await service.start()
        services.append(service)
        channels.append(grpc.aio.insecure_channel(f"127.0.0.1:{service.port}"))
        return service, channels[-1]

    yield begin
    for channel in channels:
        await channel.close()
    for service in services:
        await service.stop()


class Twin:
    """The gateway's own router on the same configuration, told of the same requests."""

    def __init__(self, service: PickerService, clock: Clock) -> None:
        self._snapshot = service._directory.snapshot
        self._router = Router(clock)
        self._router.sync(self._snapshot)

    def pick(self, body: bytes) -> tuple[list[str], Placed, Progress]:
        ask = ask_of_body(json.loads(body), body, "")
        choice = self._router.place(self._snapshot.models["m"], self._snapshot.pools["p"], ask)
        progress = Progress()
        placed = choice.begin(choice.candidates[0], progress)
        assert placed is not None
        return [endpoint_of(spec) for spec in choice.candidates[:3]], placed, progress


async def test_picks_are_those_of_our_own_router_on_the_same_state(start):
    hands, draw = Hands(), random.Random(11)
    service, channel = await start(configuration(), hands.clock())
    twin = Twin(service, hands.clock())
    documents = [f"document {number}: " + "words " * 300 for number in range(12)]
    under_way: list[tuple[Exchange, Placed, Progress]] = []
    seen: set[str] = set()
    for number in range(PICKS):
        hands.now += draw.randrange(20_000_000)
        prompt = documents[draw.randrange(12)] + f" question {number}"
        body = body_of(prompt=prompt, stream=True, max_tokens=draw.randrange(1, 400))
        exchange = Exchange(channel)
        expected, placed, progress = twin.pick(body)
        assert picked(await exchange.pick(body)) == expected, f"pick {number}"
        seen.add(expected[0])
        under_way.append((exchange, placed, progress))
        if len(under_way) > 16:
            exchange, placed, progress = under_way.pop(draw.randrange(len(under_way)))
            hands.now += 30_000_000
            if progress.on_first is not None:
                progress.on_first(hands.now)
            placed.end(Result(), None)
            await exchange.respond()
            await exchange.close()
    assert len(seen) == REPLICAS and service.picker.picks == PICKS


async def test_keys_of_a_gateway_s_file_are_not_read(start):
    _, channel = await start({**configuration(), "keys": [{"key": "env:NOT_SET_HERE", "tenant": "acme"}]})
    assert len(picked(await Exchange(channel).pick(body_of()))) == 3


async def test_a_body_that_is_streamed_comes_back_as_it_was(start):
    _, channel = await start(configuration(replicas=2))
    exchange = Exchange(channel, duplex=True)
    body = body_of(prompt="x" * 200_000)
    answer = await exchange.pick(body, pieces=7)
    assert len(picked(answer)) == 2
    assert exchange.body == body
    await exchange.close()


async def test_only_what_the_proxy_leaves_is_chosen_from(start):
    _, channel = await start(configuration())
    for _ in range(4):
        exchange = Exchange(channel)
        assert set(picked(await exchange.pick(body_of(), subset=["10.0.0.3:8000", "10.0.0.5:8000"]))) == {
            "10.0.0.3:8000",
            "10.0.0.5:8000",
        }
    exchange = Exchange(channel)
    refused = await exchange.pick(body_of(), subset=["10.0.9.9:8000"])
    assert refused.immediate_response.status.code == 503


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "names no model"),
        (b'{"model": 1}', 400, "names no model"),
        (body_of(model="other"), 404, "'other'"),
        (body_of(prompt="x" * 5000), 413, "larger than 4096 bytes"),
    ],
)
@pytest.mark.parametrize("duplex", [False, True])
async def test_a_request_that_cannot_be_placed_is_answered(start, body: bytes, status: int, says: str, duplex: bool):
    _, channel = await start(configuration(), max_body_bytes=4096)
    exchange = Exchange(channel, duplex=duplex)
    refused = (await exchange.pick(body)).immediate_response
    assert refused.status.code == status
    assert says in json.loads(refused.body)["error"]["message"]


async def test_an_endpoint_that_fails_is_suspected(start):
    hands = Hands()
    service, channel = await start(configuration(replicas=2), hands.clock())
    exchange = Exchange(channel)
    failed = picked(await exchange.pick(body_of()))[0]
    await exchange.respond(status="500")
    await exchange.close()
    hands.now += 1_000_000
    exchange = Exchange(channel)
    assert picked(await exchange.pick(body_of()))[0] != failed
    await exchange.close()
    status: Any = service.router.status()
    assert [one["running"] for one in status["pools"]["p"]["replicas"].values()] == [0, 0]


async def test_endpoints_that_are_found_join_and_leave(start, tmp_path: Path):
    file = tmp_path / "endpoints"
    file.write_text("10.0.0.1:8000\n")
    config = configuration(replicas=1, url="http://{address}/v1", settings={"discover": f"file:{file}"})
    service, channel = await start(config)
    assert picked(await Exchange(channel).pick(body_of())) == ["10.0.0.1:8000"]
    file.write_text("10.0.0.2:8000\n10.0.0.3:8000\n")
    while service._directory.snapshot.pools["p"].targets[0].url != "http://10.0.0.2:8000/v1":
        await service._directory.refresh()
    assert set(picked(await Exchange(channel).pick(body_of()))) == {"10.0.0.2:8000", "10.0.0.3:8000"}


async def test_health_is_told_by_whether_any_endpoint_is_known(start, tmp_path: Path):
    file = tmp_path / "endpoints"
    file.write_text("")
    config = configuration(replicas=1, url="http://{address}/v1", settings={"discover": f"file:{file}"})
    service, channel = await start(config)
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert await check(b"") == b"\x08\x02"
    refused = await Exchange(channel).pick(body_of())
    assert refused.immediate_response.status.code == 503
    file.write_text("10.0.0.2:8000\n")
    while await check(b"") != b"\x08\x01":
        await service._directory.refresh()
