"""A stop: streams cut at the drain limit end with an event, new requests are refused in order, no step record is left.

A gateway is stopped with SIGTERM while twenty streams that never end are in progress, of the fast and of the general
path, and is sent new requests meanwhile. Then `tollkeeper up` serves a chat at its own engine host and is stopped.
"""

import asyncio
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import httpx

from bench.fleet.connection import Connection
from bench.fleet.fleet import key_of
from bench.fleet.gateway import GatewayProcess
from bench.regressions.model_servers import HEAD, Json, ModelServer, Write, piece, target
from bench.report import Report

_STREAMS: Final = 20
_NEW: Final = 20
_NOTICE_SECONDS: Final = 3
_DRAIN_SECONDS: Final = 4
_CHUNK_SECONDS: Final = 0.1
_CLIENT_SECONDS: Final = 20.0
_UP_SECONDS: Final = 300.0
UP_PORTS: Final = 9
_FIRST_EPHEMERAL: Final = 32_768  # on Linux, where nothing else is set
_LEFT: Final = re.compile(r"step records left behind records=(\d+)")
TAKEN: Final = "step records go to gateway"


def measure(report: Report) -> None:
    """Stop a gateway with streams in progress, and an installation with an engine host."""
    ended, recorded, refused = asyncio.run(_stop_gateway())
    report.add("drain_streams_ended_by_event", ended, "streams", must=_STREAMS, n=_STREAMS)
    report.add("drain_recorded_as_shutdown", recorded, "requests", must=_STREAMS, n=_STREAMS)
    report.add("drain_refused_cleanly", refused, "requests", must=_NEW, n=_NEW)
    report.add("drain_step_records_left", _stop_installation(), "records", must=0, better="lower", n=1)


async def _stop_gateway() -> tuple[int, int, int]:
    """Return the streams that ended with the error event, those recorded so, and the new requests refused in order."""
    server = ModelServer(_stream_forever)
    await server.start()
    with tempfile.TemporaryDirectory(prefix="tollkeeper-drain-") as home:
        times = {
            "TOLLKEEPER_DRAIN_SECONDS": str(_DRAIN_SECONDS),
            "TOLLKEEPER_DRAIN_NOTICE_SECONDS": str(_NOTICE_SECONDS),
        }
        gateway = GatewayProcess("gw", Path(home), _configuration(server.url), environment=times)
        try:
            await gateway.start()
            streams = [await _begin(gateway.port, number) for number in range(_STREAMS)]
            kept = [await Connection.open(gateway.port) for _ in range(_NEW // 2)]
            gateway.ask_to_end()
            await asyncio.sleep(0.3)
            refused = await _ask_anew(gateway.port, kept)
            ended = sum(await asyncio.gather(*[_ends_with_event(reader) for reader, _ in streams]))
            for _, writer in streams:
                writer.close()
            await gateway.stop()
        finally:
            gateway.kill()
            await server.stop()
        codes = [(record.outcome, record.error_code) for record in gateway.records()]
        return ended, codes.count(("error", "shutdown")), refused


async def _begin(port: int, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Start a stream and wait for its first chunk; every second one goes the general path."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    more = f"x-tollkeeper-tags: job={number}\r\n" if number & 1 else ""
    writer.write(_request({"stream": True}, more))
    async with asyncio.timeout(_CLIENT_SECONDS):
        await reader.readuntil(b"word ")
    return reader, writer


async def _ends_with_event(reader: asyncio.StreamReader) -> bool:
    """Read a stream to its end; return whether that was an error event with the code `shutdown`."""
    with suppress(OSError, TimeoutError, ValueError, LookupError):
        async with asyncio.timeout(_CLIENT_SECONDS):
            rest = await reader.read()
        last = json.loads(rest[rest.rindex(b"data: ") + 6 :].split(b"\n")[0])
        return rest.endswith(b"0\r\n\r\n") and last["error"]["code"] == "shutdown"
    return False


async def _ask_anew(port: int, kept: list[Connection]) -> int:
    """Send requests on connections that were open and on new ones; return how many were refused in order."""
    refused = 0
    for number in range(_NEW):
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError, LookupError, TypeError):
            connection = kept.pop() if kept else await Connection.open(port)
            answer = await connection.ask(_request({"stream": bool(number & 1)}))
            connection.close()
            body: Any = answer.json
            is_told = answer.headers["connection"] == "close" and int(answer.headers["retry-after"]) >= 1
            refused += answer.status == 503 and body["error"]["code"] == "draining" and is_told
    return refused


def _request(fields: Json, more: str = "") -> bytes:
    data = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}], **fields}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
        f"Authorization: Bearer {key_of(0)}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def _configuration(url: str) -> Json:
    return {
        "keys": [{"key": key_of(0), "tenant": "drain", "id": "key_0"}],
        "pools": [{"name": "m", "policy": "round_robin", "targets": [target("u", url)]}],
        "models": [{"name": "m", "pool": "m"}],
    }


async def _stream_forever(body: Json, write: Write) -> None:
    await write(HEAD)
    while True:
        delta = {"content": "word "}
        await write(piece({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
        await asyncio.sleep(_CHUNK_SECONDS)


def _stop_installation() -> int:
    """Run `tollkeeper up`, have one chat answered by its engine host, stop it; return the step records left behind."""
    with tempfile.TemporaryDirectory(prefix="tollkeeper-drain-up-") as home:
        data, log, base = Path(home) / "data", Path(home) / "up.log", free_ports(UP_PORTS)
        command = [sys.executable, "-m", "tollkeeper", "up", "--data", str(data), "--port-base", str(base)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
        with log.open("wb") as file:
            process = subprocess.Popen([*command, "--no-dashboard"], env=environment, stdout=file, stderr=file)
        try:
            wait_for(log, "stops everything", process)
            wait_for(log, TAKEN, process)
            key = (data / "secrets" / "demo_key").read_text().strip()
            chat = {"model": "tollkeeper-5m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hello"}]}
            reply = httpx.post(
                f"http://127.0.0.1:{base}/v1/chat/completions",
                json=chat,
                headers={"Authorization": f"Bearer {key}"},
                timeout=_CLIENT_SECONDS,
                trust_env=False,
            )
            reply.raise_for_status()
            process.send_signal(signal.SIGINT)
            process.wait(_UP_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()  # it takes its children with it
                process.wait()
        return sum(int(count) for count in _LEFT.findall(log.read_text()))


def wait_for(log: Path, words: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a log holds words. Raise RuntimeError if its process ends before that, or takes too long."""
    deadline = time.monotonic() + _UP_SECONDS
    while words not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"`tollkeeper up` did not say {words!r}:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def free_ports(count: int) -> int:
    """Return the first of consecutive free ports."""
    for _ in range(100):
        first = random.randrange(20_000, _FIRST_EPHEMERAL - count)
        with ExitStack() as held, suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise RuntimeError(f"there are no {count} consecutive free ports below {_FIRST_EPHEMERAL}")
