"""What a pick costs beside an empty ext_proc server, and how soon an endpoint that is gone gets no more requests.

Both servers run in processes of their own and are asked by the same client, in turns, so that a stall of the machine
hits both.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import grpc.aio
import yaml

from backends.ext_proc.messages import METHOD, SERVICE, ProcessingRequest, ProcessingResponse
from backends.ext_proc.server import ExtProcServer
from bench.fleet.connection import Connection, chat_request
from bench.fleet.gateway import GatewayProcess
from bench.report import Report, run_bench
from tests.backends.endpoints.api_server import ApiServer, slice_of
from tests.ports import find_free_ports

MUST_RATIO: Final = 1.5
MUST_GONE_SECONDS: Final = 1.0
_PICKS: Final = 4000
_QUICK_PICKS: Final = 800
_ROUNDS: Final = 8
_REPLICAS: Final = 16
_LEAVINGS: Final = 20
_CALLERS: Final = 4
_RECENT_SECONDS: Final = 0.5  # an endpoint that leaves is one that is asked
_BETWEEN_LEAVINGS_SECONDS: Final = 0.3
_COMPLETION: Final = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    }
).encode()
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(_COMPLETION),
    _COMPLETION,
)
_KEY: Final = "tk-" + "A" * 43


def measure(report: Report) -> None:
    """Measure picks, and endpoints that leave."""
    picks = _QUICK_PICKS if report.quick else _PICKS
    with tempfile.TemporaryDirectory() as folder:
        picker, empty = asyncio.run(_compare(Path(folder), picks))
    cpu = picker.cpu_seconds / empty.cpu_seconds
    p99 = picker.p99_ms / empty.p99_ms
    report.add("pick_cpu", cpu, "x an empty server", must=MUST_RATIO, stretch=1.2, better="lower", n=picks)
    report.add("pick_p99", p99, "x an empty server", must=MUST_RATIO, stretch=1.2, better="lower", n=picks)
    report.add("pick_cpu_us", picker.cpu_seconds / picks * 1e6, "us", n=picks)
    report.add("pick_p99_ms", picker.p99_ms, "ms", n=picks)
    with tempfile.TemporaryDirectory() as folder:
        gone = asyncio.run(_leave(Path(folder)))
    report.add("endpoint_gone_max", max(gone), "s", must=MUST_GONE_SECONDS, stretch=0.2, better="lower", n=len(gone))


class _Server:
    """A process that serves ext_proc, with what it took."""

    def __init__(self, *command: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.times: list[float] = []
        self.cpu_seconds = 0.0
        self._cpu_before = 0.0
        self.channel: Any = None

    @property
    def p99_ms(self) -> float:
        return statistics.quantiles(self.times, n=100)[98] * 1000

    async def connect(self, port: int) -> None:
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        await asyncio.wait_for(self.channel.channel_ready(), 60)

    async def ask(self, count: int) -> None:
        before = self._cpu()
        for number in range(count):
            self.times.append(await _ask(self.channel, number))
        self.cpu_seconds += self._cpu() - before

    async def close(self) -> None:
        await self.channel.close()
        self._process.terminate()
        self._process.wait()

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _compare(folder: Path, picks: int) -> tuple[_Server, _Server]:
    ports = find_free_ports(2)
    file = folder / "picker.yaml"
    file.write_text(yaml.safe_dump(_configuration(None)))
    picker = _Server(
        "-m", "gateway.routing.picker", TOLLKEEPER_GATEWAY_CONFIG=str(file), TOLLKEEPER_PICKER_PORT=str(ports[0])
    )
    empty = _Server("-c", f"from bench.endpoint_picker import serve_empty; serve_empty({ports[1]})")
    try:
        await picker.connect(ports[0])
        await empty.connect(ports[1])
        for server in (picker, empty):
            await server.ask(50)
            server.times, server.cpu_seconds = [], 0.0
        for _ in range(_ROUNDS):
            for server in (picker, empty):
                await server.ask(picks // _ROUNDS)
    finally:
        await picker.close()
        await empty.close()
    return picker, empty


async def _ask(channel: Any, number: int) -> float:
    """Have one request placed and answered; return how long the pick took, in seconds."""
    call = channel.stream_stream(
        f"/{SERVICE}/{METHOD}",
        request_serializer=ProcessingRequest.SerializeToString,
        response_deserializer=ProcessingResponse.FromString,
    )()
    head, body = ProcessingRequest(), ProcessingRequest()
    head.request_headers.headers.headers.add(key=":path", raw_value=b"/v1/chat/completions")
    text = f"question {number % 7}: " + "words " * 150
    body.request_body.body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    body.request_body.end_of_stream = True
    began = time.perf_counter()
    await call.write(head)
    await call.read()
    await call.write(body)
    await call.read()
    took = time.perf_counter() - began
    await call.done_writing()
    await call.read()
    return took


def serve_empty(port: int) -> None:
    """Serve answers that change nothing, until the process is ended."""

    async def process(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for message in requests:
            answer = ProcessingResponse()
            part = "request_headers" if message.HasField("request_headers") else "request_body"
            getattr(answer, part).SetInParent()
            yield answer

    async def serve() -> None:
        await ExtProcServer(process, lambda: True).start("127.0.0.1", port)
        await asyncio.Event().wait()

    asyncio.run(serve())


class _Endpoints:
    """Model servers on one port of several addresses of loopback, and when each was asked last."""

    def __init__(self) -> None:
        self.asked_at: dict[str, float] = {}
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "0.0.0.0", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("sockname")[0]
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
                self.asked_at[address] = time.monotonic()
                writer.write(_ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def _leave(folder: Path) -> list[float]:
    """Return how long after it left its Service each endpoint was asked for the last time, in seconds."""
    server, endpoints = ApiServer(), _Endpoints()
    await endpoints.start()
    addresses = [f"127.0.1.{number + 1}" for number in range(_LEAVINGS)]
    for address in addresses:
        server.put(slice_of(address, address, port=endpoints.port))
    settings = {"TOLLKEEPER_KUBERNETES_URL": server.url}
    gateway = GatewayProcess("gateway", folder, _configuration("kubernetes:models/vllm:http"), environment=settings)
    left_at: dict[str, float] = {}
    calling: list[asyncio.Task[None]] = []
    try:
        await gateway.start()
        calling = [asyncio.create_task(_call(gateway.port)) for _ in range(_CALLERS)]
        for address in addresses[:-1]:
            while time.monotonic() - endpoints.asked_at.get(address, 0.0) > _RECENT_SECONDS:
                await asyncio.sleep(0.001)
                _raise_failures(calling)
            left_at[address] = time.monotonic()
            server.delete(address)
            await asyncio.sleep(_BETWEEN_LEAVINGS_SECONDS)
        await asyncio.sleep(MUST_GONE_SECONDS)
        _raise_failures(calling)
    finally:
        for task in calling:
            task.cancel()
        await asyncio.gather(*calling, return_exceptions=True)
        gateway.kill()
        endpoints.close()
        await asyncio.to_thread(server.close)
    return [max(endpoints.asked_at[address] - at, 0.0) for address, at in left_at.items()]


async def _call(port: int) -> None:
    """Ask again and again, at a gateway; raise RuntimeError at a failure."""
    connection, number = await Connection.open(port), 0
    try:
        while True:
            number += 1
            text = f"question {number}"
            answer = await connection.ask(
                chat_request(_KEY, {"model": "m", "messages": [{"role": "user", "content": text}]})
            )
            if answer.status != 200:
                raise RuntimeError(f"the gateway answered {answer.status}: {answer.body.decode()[:300]}")
            await asyncio.sleep(0.005)
    finally:
        connection.close()


def _raise_failures(calling: Sequence["asyncio.Task[None]"]) -> None:
    for task in calling:
        if task.done():
            task.result()


def _configuration(discover: str | None) -> dict[str, Any]:
    targets: list[dict[str, Any]]
    if discover is None:
        targets = [
            {"name": f"r{number}", "kind": "openai_http", "url": f"http://10.0.0.{number + 1}:8000/v1"}
            for number in range(_REPLICAS)
        ]
    else:
        targets = [
            {"name": "vllm", "kind": "openai_http", "url": "http://{address}/v1", "settings": {"discover": discover}}
        ]
    return {
        "keys": [{"key": _KEY, "tenant": "acme"}],
        "pools": [{"name": "p", "policy": "cost", "targets": targets}],
        "models": [{"name": "m", "pool": "p"}],
    }


if __name__ == "__main__":
    sys.exit(run_bench("endpoint_picker", measure))
