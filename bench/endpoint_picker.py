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
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc.aio
import yaml

from backends.endpoints.kubernetes_watch import KubernetesApi
from backends.ext_proc.messages import METHOD, SERVICE, ProcessingRequest, ProcessingResponse
from backends.ext_proc.server import ExtProcServer
from bench.report import Report, run_bench
from gateway.config.directory import Directory
from gateway.config.discovery import DiscoveringSource
from gateway.config.file import FileSource
from gateway.request.clock import Clock
from tests.backends.endpoints.api_server import ApiServer, slice_of
from tests.ports import find_free_ports

MUST_RATIO: Final = 1.5
MUST_GONE_SECONDS: Final = 1.0
_PICKS: Final = 4000
_QUICK_PICKS: Final = 800
_ROUNDS: Final = 8
_REPLICAS: Final = 16
_LEAVINGS: Final = 20
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
    picker = _Server("-m", "gateway.picker", TOLLKEEPER_GATEWAY_CONFIG=str(file), TOLLKEEPER_PICKER_PORT=str(ports[0]))
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


async def _leave(folder: Path) -> list[float]:
    """Return how long each endpoint that left was still among a gateway's targets, in seconds."""
    server = ApiServer()
    file = folder / "gateway.yaml"
    file.write_text(yaml.safe_dump(_configuration("kubernetes:models/vllm:http")))
    for number in range(_LEAVINGS):
        server.put(slice_of(f"s{number}", f"10.0.0.{number + 1}"))
    source = FileSource(file, b"")
    found = DiscoveringSource(source, source.load(), KubernetesApi(server.url))
    directory = Directory(found, found.first, Clock(), 1e9, lambda: None)
    loop = asyncio.get_running_loop()
    changes: set[asyncio.Task[None]] = set()

    def look() -> None:
        changes.add(asyncio.create_task(directory.refresh()))

    found.on_change = lambda: _soon(loop, look)
    polling = asyncio.create_task(directory.run())
    gone = []
    try:
        while server.watching == 0:
            await asyncio.sleep(0.01)
        for number in range(_LEAVINGS - 1):
            began = time.monotonic()
            server.delete(f"s{number}")
            name = f"vllm@10.0.0.{number + 1}:8000"
            while any(target.id == name for target in directory.snapshot.pools["p"].targets):
                await asyncio.sleep(0.001)
            gone.append(time.monotonic() - began)
    finally:
        polling.cancel()
        await directory.close()
        server.close()
    return gone


def _soon(loop: asyncio.AbstractEventLoop, call: Any) -> None:
    loop.call_soon_threadsafe(call)


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
