"""Large and hostile, but valid bodies: how much memory a gateway takes for them, and for how long others wait.

A gateway in front of an engine host whose model has a context of 32,768 tokens, of a model server and of the scripted
model is sent one prompt of 31 MB, then eight at once; then six bodies that are slow to parse, to render or to count.
"""

import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import yaml

from bench.crashing.service import Service
from bench.regressions.security._delays import memory_bytes, reset_peak, watching
from bench.report import Report

_KEY: Final = "tk-" + "R" * 43
_BYTES: Final = 31_000_000
_AT_ONCE: Final = 8
_ONE_MUST: Final = 150.0
_EIGHT_MUST: Final = 400.0
_STALL_MUST: Final = 100.0
_TIMES: Final = 5
_SETTLE_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 120.0
_ENGINE_SECONDS: Final = 60.0


def measure(report: Report) -> None:
    """Add the growth for one prompt and for eight, and the longest delay that each hostile body makes."""
    with tempfile.TemporaryDirectory(prefix="tollkeeper-bodies-") as folder:
        home = Path(folder)
        with _engine_host(home / "engine") as engine, _model_server() as upstream:
            with _gateway(home / "one", engine, upstream) as gateway:
                one, kept, faults = _growth(gateway, 1)
            with _gateway(home / "eight", engine, upstream) as gateway:
                eight, _, more = _growth(gateway, _AT_ONCE)
            faults += more
            with _gateway(home / "stalls", engine, upstream) as gateway:
                stalls, more = _stalls(gateway, 3 if report.quick else _TIMES)
    report.add("large_bodies_one_growth", one, "MB", must=_ONE_MUST, better="lower")
    report.add("large_bodies_one_kept", kept, "MB", must=_ONE_MUST, better="lower")
    report.add("large_bodies_eight_growth", eight, "MB", must=_EIGHT_MUST, better="lower", n=_AT_ONCE)
    for name, found in stalls.items():
        stall = statistics.median(found)
        report.add(f"large_bodies_stall_{name}", stall, "ms", must=_STALL_MUST, better="lower", n=len(found))
    longest = max(statistics.median(found) for found in stalls.values())
    report.add("large_bodies_longest_stall", longest, "ms", must=_STALL_MUST, better="lower", n=len(stalls))
    report.add("large_bodies_server_errors", faults + more, "answers", must=0, better="lower")


def hostile_bodies() -> dict[str, bytes]:
    """Return six valid bodies of about 31 MB by what is large in them."""
    message = b'{"role":"user","content":"a"}'
    image = b'{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}'
    tool = b'{"type":"function","function":{"name":"f","parameters":{}}}'
    depth = 400  # below what parsers refuse
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    return {
        "string": _chat("engine", b'{"role":"user","content":"%b"}' % (b"a " * (_BYTES // 2))),
        "messages": _chat("engine", _many(message)),
        "nesting": _chat("engine", message, b',"guided_json":{"enum":[%b]}' % _many(nested)),
        "tools": _chat("server", message, b',"tools":[%b]' % _many(tool)),
        "schema": _chat("engine", message, _schema()),
        "images": _chat("server", b'{"role":"user","content":[%b]}' % _many(image)),
    }


def _many(one: bytes) -> bytes:
    return b",".join([one] * (_BYTES // (len(one) + 1)))


def _schema() -> bytes:
    fields = b",".join([b'"p%d":{"type":"string"}' % number for number in range(_BYTES // 30)])
    schema = b'{"type":"object","properties":{%b}}' % fields
    return b',"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":%b}}' % schema


def _chat(model: str, messages: bytes, more: bytes = b"") -> bytes:
    return b'{"model":"%b","max_tokens":8,"messages":[%b]%b}' % (model.encode(), messages, more)


def _growth(gateway: Service, count: int) -> tuple[float, float, int]:
    """Return by how many MB a gateway grew for the given number of prompts at once, how much of that stays, and its
    faults.
    """
    port, process_id = _port(gateway), gateway.process_id
    _ask(port, _chat("engine", b'{"role":"user","content":"a"}'))
    before = memory_bytes(process_id, "VmRSS")
    reset_peak(process_id)
    body = hostile_bodies()["string"]
    statuses = _ask_at_once(port, body, count)
    peak = memory_bytes(process_id, "VmHWM")
    time.sleep(_SETTLE_SECONDS)
    after = memory_bytes(process_id, "VmRSS")
    return (peak - before) / 1e6, max(after - before, 0) / 1e6, sum(status in (0, 500, 502) for status in statuses)


def _stalls(gateway: Service, times: int) -> tuple[dict[str, list[float]], int]:
    """Return the delays that each body makes, each as many times, and how many answers were faults."""
    port, faults = _port(gateway), 0
    spans: list[tuple[str, float, float]] = []
    bodies = hostile_bodies()
    with watching(port) as delays:
        for _ in range(times):
            for name, body in bodies.items():
                began = time.monotonic()
                faults += _ask(port, body) in (0, 500, 502)
                time.sleep(0.1)
                spans.append((name, began, time.monotonic()))
    found: dict[str, list[float]] = {name: [] for name in bodies}
    for name, began, ended in spans:
        found[name].append(delays.longest_ms(began, ended))
    return found, faults


def _ask_at_once(port: int, body: bytes, count: int) -> list[int]:
    statuses = [0] * count

    def ask(place: int) -> None:
        statuses[place] = _ask(port, body)

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def _ask(port: int, body: bytes) -> int:
    """Send a chat and return the status of its answer; 0: there was none."""
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {_KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), _ANSWER_SECONDS) as line:
        answer = b""
        try:
            line.sendall(head.encode())
            line.sendall(body)
            while piece := line.recv(65536):
                answer += piece
        except OSError:
            pass
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def _port(gateway: Service) -> int:
    return int(gateway.ready_url.rpartition(":")[2].partition("/")[0])


@contextmanager
def _gateway(home: Path, engine: str, upstream: str) -> Iterator[Service]:
    home.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    targets: dict[str, dict[str, Any]] = {
        "engine": {"kind": "engine", "url": engine, "model": "builtin"},
        "server": {"kind": "openai_http", "url": upstream},
        "scripted": {"kind": "scripted"},
    }
    file = home / "gateway.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "keys": [{"key": _KEY, "tenant": "acme"}],
                "pools": [{"name": name, "targets": [{"name": name, **target}]} for name, target in targets.items()],
                "models": [{"name": name, "pool": name} for name in targets],
            }
        )
    )
    environment = {
        "TOLLKEEPER_GATEWAY_CONFIG": str(file),
        "TOLLKEEPER_GATEWAY_PORT": str(port),
        "TOLLKEEPER_GATEWAY_NAME": "bodies",
    }
    service = Service("gateway", "gateway", home, f"http://127.0.0.1:{port}/ready", environment)
    try:
        service.start()
        deadline = time.monotonic() + _ENGINE_SECONDS
        while _ask(port, _chat("engine", b'{"role":"user","content":"a"}')) != 200:
            if time.monotonic() > deadline:
                raise RuntimeError("the engine host's model is not served")
            time.sleep(0.1)
        yield service
    finally:
        service.end()


@contextmanager
def _engine_host(home: Path) -> Iterator[str]:
    """Run an engine host whose model plays a script; yield its URL."""
    home.mkdir()
    environment = {
        "TOLLKEEPER_DATA": str(home),
        "TOLLKEEPER_ENGINE_EMBEDDER": "false",
        "SCRIPT_CONTEXT_TOKENS": "32768",
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
        "PATH": "/usr/bin:/bin",
    }
    with (home / "engine.log").open("wb") as log:
        command = [sys.executable, "-m", "bench.scripted_host"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield f"unix://{home}/run/engine-default.sock"
    finally:
        process.terminate()
        process.wait()


class _Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        left = int(self.headers["content-length"])
        while left:
            left -= len(self.rfile.read(min(left, 1 << 20)))
        answer = json.dumps(
            {
                "id": "x",
                "object": "chat.completion",
                "model": "server",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing."""


@contextmanager
def _model_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
