"""The demo's traffic, against a small HTTP server that answers as the gateway does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from contracts.errors import ConfigurationError
from tollkeeper.demo import drive

CHUNK = json.dumps({"choices": [{"delta": {"content": "a"}}]})
USAGE = {"prompt_tokens": 10, "completion_tokens": 3}


@dataclass
class FakeGateway:
    """Answers every chat with 3 tokens; `fails` makes streams end with an error event."""

    models: tuple[str, ...] = ("small",)
    fails: bool = False
    port: int = 0
    bodies: list[tuple[str, dict[str, object]]] = field(default_factory=list)  # key, body

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            kind, answer = self.answer(head, headers, body)
            reply = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{answer}"
            writer.write(reply.encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left, as some of them do
        finally:
            writer.close()

    def answer(self, head: str, headers: dict[str, str], body: bytes) -> tuple[str, str]:
        if head.startswith("GET /v1/models "):
            return "application/json", json.dumps({"data": [{"id": model} for model in self.models]})
        request = json.loads(body)
        self.bodies.append((headers["authorization"].removeprefix("bearer "), request))
        if not request.get("stream"):
            return "application/json", json.dumps({"choices": [], "usage": USAGE})
        last = {"error": {"code": "upstream_broken"}} if self.fails else {"choices": [], "usage": USAGE}
        events = [CHUNK, CHUNK, CHUNK, json.dumps(last), "[DONE]"]
        return "text/event-stream", "".join(f"data: {event}\n\n" for event in events)


@asynccontextmanager
async def serving(gateway: FakeGateway) -> AsyncIterator[FakeGateway]:
    server = await asyncio.start_server(gateway.serve_one, "127.0.0.1", 0)
    gateway.port = server.sockets[0].getsockname()[1]
    async with server:
        yield gateway


KEYS = {"acme": "sk-a", "globex": "sk-b", "initech": "sk-c"}


async def test_every_tenant_chats_with_its_own_key_and_the_first_the_most() -> None:
    async with serving(FakeGateway()) as gateway:
        summary = await drive(gateway.url, KEYS, seconds=1.0, rate=150.0)
    used = {key for key, _ in gateway.bodies}
    assert used == set(KEYS.values())
    assert summary.requests["acme"] > summary.requests["globex"] > summary.requests["initech"] > 0
    assert summary.sent == len(gateway.bodies) == summary.statuses[200]
    assert summary.failed == 0


async def test_tokens_are_those_the_gateway_reported() -> None:
    async with serving(FakeGateway()) as gateway:
        summary = await drive(gateway.url, KEYS, seconds=0.5, rate=100.0)
    assert summary.streamed == sum(1 for _, body in gateway.bodies if body.get("stream")) > 0
    reported = summary.output_tokens // USAGE["completion_tokens"]
    assert summary.sent - summary.left_early <= reported <= summary.sent
    assert summary.input_tokens == reported * USAGE["prompt_tokens"]


async def test_a_stream_that_ends_with_an_error_counts_as_failed() -> None:
    async with serving(FakeGateway(fails=True)) as gateway:
        summary = await drive(gateway.url, {"acme": "sk-a"}, seconds=0.3, rate=100.0)
    assert summary.streamed > summary.left_early
    assert summary.streamed - summary.left_early <= summary.failed <= summary.streamed


async def test_a_gateway_that_is_not_there_is_named() -> None:
    async with serving(FakeGateway()) as gateway:
        url = gateway.url
    with pytest.raises(ConfigurationError, match=f"no gateway answers at {url}"):
        await drive(url, KEYS, seconds=0.1, rate=10.0)


async def test_a_tenant_without_models_is_told_so() -> None:
    async with serving(FakeGateway(models=())) as gateway:
        with pytest.raises(ConfigurationError, match="tenant 'acme' sees no model"):
            await drive(gateway.url, KEYS, seconds=0.1, rate=10.0)


@pytest.mark.parametrize(("keys", "rate"), [({}, 10.0), (KEYS, 0.0), (KEYS, -1.0)])
async def test_traffic_needs_a_key_and_a_rate(keys: dict[str, str], rate: float) -> None:
    with pytest.raises(ConfigurationError, match="rate above 0"):
        await drive("http://127.0.0.1:9", keys, seconds=0.1, rate=rate)
