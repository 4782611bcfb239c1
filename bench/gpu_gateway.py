"""The whole gateway before an engine host: a process from one YAML file with its journal, asked over HTTP by others."""

import asyncio
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final, cast

import uvloop
import yaml

from bench.gpu_host import ROOT
from bench.gpu_models import words
from bench.gpu_runs import Answer, Run
from bench.gpu_workloads import Workload

KEY: Final = "tk-" + "G" * 43
CLIENTS: Final = 4  # processes: one alone would be slower than a gateway with a fast engine
_READY_SECONDS: Final = 60.0
_RUN_SECONDS: Final = 120.0


class GatewayProcess:
    """`python -m gateway` before one engine host; neither database nor store, journal only."""

    def __init__(self, model: str, socket: Path, data: Path, port: int, keys: Mapping[str, str] | None = None) -> None:
        """`keys` has each key's tenant (default: one key of tenant A)."""
        data.mkdir(parents=True, exist_ok=True)
        self.model = model
        self.port = port
        self.log = data / "gateway.log"
        config = data / "gateway.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "keys": [{"key": key, "tenant": tenant} for key, tenant in (keys or {KEY: "A"}).items()],
                    "pools": [
                        {"name": "pool", "targets": [{"name": "engine", "kind": "engine", "url": f"unix://{socket}"}]}
                    ],
                    "models": [{"name": model, "pool": "pool"}],
                }
            )
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gateway"],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
                "TOLLKEEPER_DATA": str(data),
                "TOLLKEEPER_GATEWAY_CONFIG": str(config),
                "TOLLKEEPER_GATEWAY_PORT": str(port),
                "TOLLKEEPER_JOURNAL_MAX_BYTES": str(1 << 30),
            },
            cwd=ROOT,
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
        )

    async def ready(self) -> None:
        """Wait until the gateway knows the host's model. Raises RuntimeError when it does not in time."""
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            engines = (await asyncio.to_thread(self._health)).get("engines", {})
            if any(one.get("state") == "ready" for one in engines.values()):
                return
            await asyncio.sleep(0.2)
        raise RuntimeError(f"the gateway did not become ready: {self.log.read_text(errors='replace')[-2000:]}")

    async def run(self, workload: Workload) -> Run:
        """Ask all of a workload over HTTP, as streamed chats, from several processes."""
        text = words()
        asks = [("".join(text[one] for one in ask.prompt), ask.output_tokens) for ask in workload.asks]
        count = min(CLIENTS, len(asks))
        began_ns = time.time_ns()
        parts = await asyncio.gather(*(self._clients(asks[place::count]) for place in range(count)))
        answers = [Answer(*values) for part in parts for values in part]
        return Run(workload.name, answers, [], began_ns, time.time_ns())

    def kill(self) -> None:
        """End the process without warning."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    async def _clients(self, asks: Sequence[tuple[str, int]]) -> list[list[Any]]:
        answers = Path(tempfile.mkstemp(suffix=".json")[1])  # too long for a pipe that an event loop reads
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.gpu_gateway",
            str(answers),
            stdin=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))},
        )
        order = json.dumps({"port": self.port, "model": self.model, "asks": list(asks)}).encode()
        try:
            await asyncio.wait_for(process.communicate(order), _RUN_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise
        if process.returncode:
            raise RuntimeError(f"clients of the gateway ended with {process.returncode}")
        found: list[list[Any]] = json.loads(answers.read_text())
        answers.unlink()
        return found

    def _health(self) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/ready")
            found = json.loads(connection.getresponse().read())
            return found if isinstance(found, dict) else {}
        except (OSError, ValueError, http.client.HTTPException):
            return {}
        finally:
            connection.close()


class _Stream(asyncio.Protocol):
    """One request on a connection of its own, its chunks timed as they come."""

    def __init__(self, request: bytes, done: asyncio.Future[None]) -> None:
        self._request = request
        self._done = done
        self._tail = b""
        self.answer = Answer(0.0)
        self.transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)  # uvloop's is none by name

    def ask(self) -> None:
        assert self.transport is not None
        self.answer.asked = time.monotonic()
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now, data = time.monotonic(), self._tail + data
        end = data.rfind(b"\n\n") + 2
        events, self._tail = data[: max(end, 0)], data[max(end, 0) :]
        chunks = events.count(b'"content":"')
        if chunks:
            self.answer.add(chunks, now)
        if b"data: [DONE]" in events:
            self.answer.ended = now
        place = events.find(b'"completion_tokens":')
        if place >= 0:
            digits = events[place + 20 : place + 32].split(b",")[0].split(b"}")[0]
            self.answer.tokens = int(digits)  # a chunk may hold several tokens, or text of none

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_result(None)


async def _ask_all(order: dict[str, Any]) -> list[list[Any]]:
    """Open every connection, then ask on all of them at once."""
    loop = asyncio.get_running_loop()
    streams: list[_Stream] = []
    ends: list[asyncio.Future[None]] = []
    for text, output_tokens in order["asks"]:
        body = json.dumps(
            {
                "model": order["model"],
                "messages": [{"role": "user", "content": text}],
                "max_tokens": output_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
            f"content-type: application/json\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode()
        done: asyncio.Future[None] = loop.create_future()
        stream = _Stream(head + body, done)
        await loop.create_connection(lambda stream=stream: stream, "127.0.0.1", order["port"])  # type: ignore[misc]  # mypy cannot infer it
        streams.append(stream)
        ends.append(done)
    for stream in streams:
        stream.ask()
    await asyncio.gather(*ends)
    return [list(astuple(stream.answer)) for stream in streams]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(uvloop.run(_ask_all(json.loads(sys.stdin.read())))))
