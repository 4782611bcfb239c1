"""The demo: its keys on a real control plane, its traffic against a small server that answers as the gateway does."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvicorn

from backends.secret_files import SecretFiles
from contracts.errors import ConfigurationError
from contracts.keys import is_well_formed
from gateway.control.__main__ import listen
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings
from migrations.database import migrate_database
from tollkeeper.control_client import ControlClient
from tollkeeper.demo import KEY_LIFETIME, create_demo_keys, drive

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


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlClient]:
    settings = ControlSettings(data=tmp_path)
    migrate_database(settings.database_address, say=lambda line: None)
    server = uvicorn.Server(uvicorn.Config(create_app(settings), log_config=None))
    listener = listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the control plane did not start"
            time.sleep(0.01)
        token = SecretFiles(tmp_path / "secrets").get("admin_token") or ""
        with ControlClient(f"http://127.0.0.1:{listener.getsockname()[1]}", token) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


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


def test_three_tenants_with_teams_and_projects_get_a_key_each(control: ControlClient) -> None:
    now = datetime.now(UTC)
    keys = create_demo_keys(control, now)
    assert len(keys) == 3
    assert all(is_well_formed(key) for key in keys.values())
    assert set(keys) <= {tenant["id"] for tenant in control.get_all("/v1/tenants")}
    for tenant in keys:
        (key,) = control.get_all(f"/v1/tenants/{tenant}/keys")
        assert key["team_id"] and key["project_id"]
        assert datetime.fromisoformat(key["expires_at"]) - now == pytest.approx(KEY_LIFETIME, abs=timedelta(seconds=1))


def test_a_second_demo_makes_new_keys_for_the_same_tenants(control: ControlClient) -> None:
    first = create_demo_keys(control, datetime.now(UTC))
    tenants = control.get_all("/v1/tenants")
    second = create_demo_keys(control, datetime.now(UTC))
    assert set(first) == set(second)
    assert not set(first.values()) & set(second.values())
    assert control.get_all("/v1/tenants") == tenants
