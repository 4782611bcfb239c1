"""How many deltas a second the gateway takes from an engine host and gives to streaming clients, on one core.

The gateway runs in this process, all of it: socket, frames, accounting, server-sent events, sockets to clients. The
host (its real code around an engine that plays tokens) and the clients are processes of their own. What counts is
this process's CPU time, so the figure is that of one core, however many cores the others need.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvloop
import yaml

from bench.report import Report, run_bench
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings

MUST_PER_SECOND: Final = 40_000
STRETCH_PER_SECOND: Final = 80_000
STREAMS: Final = 64
_KEY: Final = "tk-" + "B" * 43
_MODEL: Final = "builtin"
_TOKENS: Final = 2_000
_PACED_TOKENS: Final = 200
_PACED_STEP_SECONDS: Final = 0.02
_READY_SECONDS: Final = 30.0


def measure(report: Report) -> None:
    """Measure 64 streams: from a host that plays as fast as it can, and from one that takes 20 ms a step."""
    rounds = 2 if report.quick else 5
    free = [_run(tokens=_TOKENS, step_seconds=0.0) for _ in range(rounds)]
    # The best, as in bench.records: other processes only ever slow a round down.
    report.add("deltas", max(free), "deltas/s of CPU", must=MUST_PER_SECOND, stretch=STRETCH_PER_SECOND, n=rounds)
    # Here no two deltas of a stream come together, so each is a write of its own to its client.
    paced = [_run(tokens=_PACED_TOKENS, step_seconds=_PACED_STEP_SECONDS) for _ in range(max(rounds // 2, 1))]
    report.add("deltas_one_a_step", max(paced), "deltas/s of CPU", must=MUST_PER_SECOND, n=len(paced))


def _run(tokens: int, step_seconds: float) -> float:
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory)
        host = subprocess.Popen(
            [sys.executable, "-m", "bench.scripted_host"],
            env={
                **os.environ,
                "TOLLKEEPER_DATA": directory,
                "TOLLKEEPER_ENGINE_EMBEDDER": "false",
                "SCRIPT_STEP_SECONDS": str(step_seconds),
            },
            stderr=subprocess.DEVNULL,
        )
        try:
            return uvloop.run(_serve(data, tokens))
        finally:
            host.terminate()
            host.wait()


async def _serve(data: Path, tokens: int) -> float:
    config = data / "gateway.yaml"
    target = {"name": "engine", "kind": "engine", "url": f"unix://{data}/run/engine-default.sock"}
    config.write_text(
        yaml.safe_dump(
            {
                "keys": [{"key": _KEY, "tenant": "bench"}],
                "pools": [{"name": "pool", "targets": [target]}],
                "models": [{"name": _MODEL, "pool": "pool"}],
            }
        )
    )
    gateway = Gateway(GatewaySettings(data=data, gateway_config=config, gateway_port=0))
    await gateway.start()
    try:
        await _until(lambda: gateway.is_engine_ready("default"), "the engine host's start")
        return await _stream(gateway, tokens)
    finally:
        await gateway.stop()


async def _stream(gateway: Gateway, tokens: int) -> float:
    clients = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.engine_wire",
        "--clients",
        str(gateway.port),
        str(tokens),
        stdout=asyncio.subprocess.PIPE,
    )
    assert clients.stdout is not None
    await clients.stdout.readline()  # connected; now it asks
    began_ns = time.process_time_ns()
    output = await clients.stdout.read()
    spent_ns = time.process_time_ns() - began_ns
    await clients.wait()
    complete = int(output)
    if complete != STREAMS:
        raise RuntimeError(f"{STREAMS - complete} of {STREAMS} streams did not end with [DONE]")
    return STREAMS * tokens / (spent_ns / 1e9)


async def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} took more than {_READY_SECONDS:g} s")
        await asyncio.sleep(0.02)


async def _read_streams(port: int, tokens: int) -> int:
    """Ask on every connection at once and read to the end; return how many answers were complete."""
    body = json.dumps(
        {
            "model": _MODEL,
            "stream": True,
            "max_tokens": tokens,
            "ignore_eos": True,
            "messages": [{"role": "user", "content": "Say something."}],
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {_KEY}\r\n"
        f"content-type: application/json\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    lines = [await asyncio.open_connection("127.0.0.1", port, limit=1 << 22) for _ in range(STREAMS)]
    print("connected", flush=True)

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(head.encode() + body)
        tail = b""
        while piece := await reader.read(1 << 20):
            tail = (tail + piece)[-64:]
        writer.close()
        return b"data: [DONE]" in tail

    return sum(await asyncio.gather(*(read(*line) for line in lines)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--clients"]:
        print(uvloop.run(_read_streams(int(sys.argv[2]), int(sys.argv[3]))))
        sys.exit(0)
    sys.exit(run_bench("engine_wire", measure))
