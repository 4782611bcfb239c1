"""A data plane in this process, over real sockets, from a YAML file; and a client that sends any bytes."""

import asyncio
import contextlib
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from backends.engine.settings import BUILTIN_PATH
from contracts.recording.records import AttemptRecord, Record, RequestRecord, decode_record
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from gateway.records.journal import unpack_entry
from gateway.request.clock import Clock
from tests.backends.counters.redis_server import RedisServer
from tests.gateway.host_process import MODEL, TOOLS_MODEL, TOOLS_TEMPLATE, HostProcess, tiny_model
from tests.gateway.model_server import eventually, new_upstream, reset, upstream
from tests.patient_loop import PatientUvloop

__all__ = ["eventually", "new_upstream", "upstream"]  # fixtures

DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# For clients that speak plain HTTP: each would read all authorities of the system, for as long as a gateway starts.
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
KEY = "tk-" + "A" * 43
BODY: dict[str, Any] = {"model": "scripted-1", "messages": [{"role": "user", "content": "one two three"}]}
COMPLETION: dict[str, Any] = {"model": "scripted-1", "prompt": "one two three"}


def pytest_asyncio_loop_factories(config, item):
    """The loop that the data plane runs on, which no stall of the machine hurries."""
    return {"uvloop": PatientUvloop}


class GivenSettings(GatewaySettings):
    """A gateway's settings as a test gives them: to look for each in the environment too takes four times as long."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *others: PydanticBaseSettingsSource,
        **more: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


class Answer:
    """One HTTP answer as it came over the wire."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found = self.json["error"]
        assert set(found) == {"message", "type", "param", "code"}, "not OpenAI's error object"
        return dict(found)

    @property
    def events(self) -> list[bytes]:
        return [event for event in self.body.split(b"\n\n") if event]


class RawClient:
    """A client that sends what it is told to, byte for byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split(" ")[1]), headers

    async def answer(self, *, has_body: bool = True) -> Answer:
        """Read one whole answer."""
        status, headers = await self.head()
        if not has_body:
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = b"".join([piece async for piece in self.pieces()])
        elif "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            body = await self.reader.read()
        return Answer(status, headers, body)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Read a chunked body piece by piece."""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)

    async def is_closed(self, within: float = 3.0) -> bool:
        """Return whether the server closes without another byte."""
        try:
            return await asyncio.wait_for(self.reader.read(1), within) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        reset(self.writer.transport)


class _Reasons(logging.Handler):
    """Keeps why targets failed, as the operators' log has it."""

    def __init__(self, kept: list[str]) -> None:
        super().__init__(logging.INFO)
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() in ("target failed", "request failed"):
            self._kept.append(vars(record)["reason"])


class Running:
    """A gateway that serves, and what a test wants of it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.reasons: list[str] = []  # that the log has, and no client is told
        self._handler = _Reasons(self.reasons)
        for name in ("gateway.routing.attempts.trial", "gateway.request.dispatch"):
            logging.getLogger(name).addHandler(self._handler)
            logging.getLogger(name).setLevel(logging.INFO)  # as in a gateway's process
        self.port = gateway.port
        self.base_url = f"http://127.0.0.1:{gateway.port}/v1"
        self._clients: list[Any] = []

    def records(self) -> list[Record]:
        """Everything in the journal that is not shipped."""
        journal = self.gateway.journal
        entries = journal.read(journal.cursor, max_entries=100_000, max_bytes=1 << 30)
        return [decode_record(unpack_entry(entry)[1]) for entry in entries]

    def requests(self) -> list[RequestRecord]:
        return [record for record in self.records() if isinstance(record, RequestRecord)]

    def attempts(self) -> list[AttemptRecord]:
        return [record for record in self.records() if isinstance(record, AttemptRecord)]

    def target(self, pool: str, name: str) -> Any:
        return self.gateway.targets._targets[pool, name]

    def sdk(self, key: str = KEY) -> openai.AsyncOpenAI:
        http = openai.DefaultAsyncHttpxClient(verify=NO_AUTHORITIES)
        client = openai.AsyncOpenAI(base_url=self.base_url, api_key=key, max_retries=0, http_client=http)
        self._clients.append(client)
        return client

    async def connect(self) -> RawClient:
        client = RawClient(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20))
        self._clients.append(client)
        return client

    async def ask(self, data: bytes, *, has_body: bool = True) -> Answer:
        """Send bytes on a connection of their own and read the answer."""
        client = await self.connect()
        await client.send(data)
        answer = await asyncio.wait_for(client.answer(has_body=has_body), 5)
        client.close()
        return answer

    async def chat(self, body: object = None, headers: Mapping[str, str] | None = None, **fields: Any) -> Answer:
        """Send one chat request."""
        return await self.ask(self.request(body, headers, **fields))

    async def complete(self, headers: Mapping[str, str] | None = None, **fields: Any) -> Answer:
        """Send one text completion."""
        return await self.ask(self.request(COMPLETION, headers, path="/v1/completions", **fields))

    @staticmethod
    def request(
        body: object = None,
        headers: Mapping[str, str] | None = None,
        version: str = "1.1",
        path: str = "/v1/chat/completions",
        **fields: Any,
    ) -> bytes:
        """Write one request, of a chat unless told otherwise."""
        data = body if isinstance(body, bytes) else json.dumps({**(body or BODY), **fields}).encode()  # type: ignore[dict-item]
        given = {
            "Host": "localhost",
            "Authorization": f"Bearer {KEY}",
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **(headers or {}),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
        return f"POST {path} HTTP/{version}\r\n{lines}\r\n".encode("latin-1") + data

    async def close(self) -> None:
        for client in self._clients:
            result = client.close()
            if asyncio.iscoroutine(result):
                await result
        for name in ("gateway.routing.attempts.trial", "gateway.request.dispatch"):
            logging.getLogger(name).removeHandler(self._handler)
        await self.gateway.stop()


def configuration(*pools: tuple[str, list[dict[str, Any]]], **more: Any) -> dict[str, Any]:
    """A configuration with one model per pool, of the same name, priced at 1 and 2 USD per million tokens."""
    return {
        "keys": [{"key": KEY, "tenant": "acme", "team": "core", "project": "apollo", "id": "key_1"}],
        "pools": [{"name": name, "policy": "round_robin", "targets": targets} for name, targets in pools],
        "models": [{"name": name, "pool": name} for name, _ in pools],
        "prices": [
            {"model": name, "version": f"t/{number}", "usd_per_mtok": {"input_text": "1", "output_text": "2"}}
            for number, (name, _) in enumerate(pools, start=1)
        ],
        **more,
    }


def scripted(name: str = "s1", weight: int = 1, **script: Any) -> dict[str, Any]:
    """A target that plays a script."""
    return {"name": name, "kind": "scripted", "weight": weight, "settings": {"script": script}}


def http_target(url: str, name: str = "u1", timeouts: Mapping[str, float] | None = None, **more: Any) -> dict[str, Any]:
    """A target over HTTP."""
    settings = {"timeouts": dict(timeouts)} if timeouts else {}
    return {"name": name, "kind": "openai_http", "url": url, "settings": settings, **more}


class Kit:
    """The builders above, for tests."""

    KEY = KEY
    BODY = BODY
    configuration = staticmethod(configuration)
    scripted = staticmethod(scripted)
    http_target = staticmethod(http_target)
    request = staticmethod(Running.request)


@pytest.fixture
def kit() -> type[Kit]:
    return Kit


@pytest.fixture(scope="session")
def engine_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """An engine host for all tests of this process, for it starts for seconds: with the built-in model, a tiny one that
    calls tools and reasons, and the embedder."""
    data = tmp_path_factory.mktemp("engine")
    models = {MODEL: BUILTIN_PATH, TOOLS_MODEL: tiny_model(data / "model", TOOLS_TEMPLATE)}
    process = HostProcess(data, models, embedder=True)
    yield process
    process.kill()


@pytest.fixture
async def patient_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the gateways of a test tell the time by its loop, which leaves out what a stall of the machine takes."""
    loop, began_ns = asyncio.get_running_loop(), time.time_ns()
    began = loop.time()
    clock = Clock(
        wall_ns=lambda: began_ns + round((loop.time() - began) * 1e9), monotonic_ns=lambda: round(loop.time() * 1e9)
    )
    monkeypatch.setattr("gateway.process.app.Clock", lambda: clock)


StartGateway = Callable[..., Awaitable[Running]]


@pytest.fixture
def after_gateways() -> Iterator[contextlib.ExitStack]:
    """What is closed once the gateways of a test have stopped: they take leave of what they share."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def own_redis(require_service: Callable[[str, bool, str], None], after_gateways: contextlib.ExitStack) -> RedisServer:
    """A Redis for the gateways of a test."""
    require_service("redis-server", RedisServer.is_installed(), "apt-get install redis-server")
    server = RedisServer()
    after_gateways.callback(server.close)
    server.start()
    return server


@pytest.fixture
async def start_gateway(tmp_path: Path, after_gateways: contextlib.ExitStack) -> AsyncIterator[StartGateway]:
    """Start data planes, each with a data directory of its own unless `data` is given."""
    running: list[Running] = []

    async def start(config: dict[str, Any], **settings: Any) -> Running:
        data = settings.pop("data", tmp_path / f"data{len(running)}")
        path = tmp_path / f"gateway{len(running)}.yaml"
        path.write_text(yaml.dump(config, Dumper=DUMPER))
        settings.setdefault("drain_seconds", 0.2)
        settings.setdefault("allowed_hosts", "a,b,g,x,gateway")  # what raw requests of tests are addressed to
        gateway = Gateway(GivenSettings(data=data, gateway_config=path, gateway_port=0, **settings))
        await gateway.start()
        running.append(Running(gateway))
        return running[-1]

    yield start
    for gateway in running:
        await gateway.close()


@pytest.fixture
async def gateway(start_gateway: StartGateway) -> Running:
    """A data plane with one scripted model, `scripted-1`."""
    return await start_gateway(configuration(("scripted-1", [scripted()])))
