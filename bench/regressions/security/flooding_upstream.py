"""Model servers that send without end: for how long others wait, and how much of it the gateway takes and keeps.

Each flood is asked for by one request whose client reads all it gets. It ends with an error, or goes on until the
scenario closes the connection. The server is a process of its own, which counts the bytes that it got rid of.
"""

import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from bench.crashing.service import Service
from bench.regressions.security._delays import memory_bytes, reset_peak, watching
from bench.report import Report

_KEY: Final = "tk-" + "R" * 43
_STALL_MUST: Final = 100.0
_GROWTH_MUST: Final = 150.0
_TAKEN_MUST: Final = 300.0
_SECONDS: Final = 3.0  # for each flood
_TIMES: Final = 5
_SERVER: Final = """
import json, socket, sys, threading
HEAD = b"HTTP/1.1 200 OK\\r\\ncontent-type: %b\\r\\n%b\\r\\n"
STREAM, WHOLE = b"text/event-stream", b"application/json"
CHUNK = {"id": "x", "created": 1, "model": "m", "choices": [{"index": 0, "delta": {"content": " a"}}]}
TOKEN = b"data: %b\\n\\n" % json.dumps(CHUNK).encode()
def chunked(data): return b"%x\\r\\n%b\\r\\n" % (len(data), data)
CHUNKED = b"transfer-encoding: chunked\\r\\n"
FLOODS = {
    "comments": (HEAD % (STREAM, b""), b": x\\n\\n"),
    "empty_events": (HEAD % (STREAM, b""), b"data: {}\\n\\n"),
    "blank_lines": (HEAD % (STREAM, b""), b"\\n\\n"),
    "tokens": (HEAD % (STREAM, b""), TOKEN),
    "token_chunks": (HEAD % (STREAM, CHUNKED), chunked(TOKEN)),
    "tiny_chunks": (HEAD % (STREAM, CHUNKED), b"1\\r\\n:\\r\\n"),
    "long_line": (HEAD % (STREAM, b""), b"data: " + b"a" * 1000),
    "whole": (HEAD % (WHOLE, b"") + b'{"choices":"', b"a" * 1000),
    "whole_in_tiny_chunks": (HEAD % (WHOLE, CHUNKED), b"2\\r\\n[]\\r\\n"),
    "headers": (b"HTTP/1.1 200 OK\\r\\n", b"x-a: b\\r\\n"),
    "interim": (b"", b"HTTP/1.1 100 Continue\\r\\n\\r\\n"),
    "error_body": (b"HTTP/1.1 500 Oops\\r\\n\\r\\n", b"a" * 1000),
    "chunk_extension": (HEAD % (STREAM, CHUNKED) + b"5", b";a=b"),
}
def serve(line):
    head = b""
    while b"\\r\\n\\r\\n" not in head:
        piece = line.recv(65536)
        if not piece: return
        head += piece
    length = int(head.lower().split(b"content-length: ")[1].split(b"\\r\\n")[0])
    body = head.split(b"\\r\\n\\r\\n", 1)[1]
    while len(body) < length:
        body += line.recv(65536)
    name = json.loads(body)["messages"][0]["content"]
    first, one = FLOODS[name]
    sent, block = len(first), one * (1 + (1 << 18) // len(one))
    try:
        if name == "long_line": first += b"data: "; block = block.replace(b"data: ", b"")
        line.sendall(first)
        while True:
            line.sendall(block)
            sent += len(block)
    except OSError:
        pass
    print(json.dumps([name, sent]), flush=True)
    line.close()
listener = socket.create_server(("127.0.0.1", 0))
print(json.dumps([listener.getsockname()[1], sorted(FLOODS)]), flush=True)
while True:
    line, _ = listener.accept()
    threading.Thread(target=serve, args=(line,), daemon=True).start()
"""


def measure(report: Report) -> None:
    """Add, over all floods, the longest delay of others, the gateway's growth and what it took of what ends."""
    times = 1 if report.quick else _TIMES
    stalls: dict[str, list[float]] = {}
    growth: dict[str, float] = {}
    taken: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="tollkeeper-floods-") as folder, _flooding() as (server, port, floods):
        with _gateway(Path(folder), port, floods) as gateway:
            _flood(gateway, "error_body")
            spans: list[tuple[str, float, float]] = []
            before = memory_bytes(gateway.process_id, "VmRSS")
            with watching(_port(gateway)) as delays:
                for _ in range(times):
                    for name in floods:
                        reset_peak(gateway.process_id)
                        began = time.monotonic()
                        _flood(gateway, name)
                        spans.append((name, began, time.monotonic()))
                        peak = memory_bytes(gateway.process_id, "VmHWM")
                        growth[name] = max(growth.get(name, 0), (peak - before) / 1e6)
        server.terminate()
        assert server.stdout is not None
        for line in server.stdout.read().splitlines():
            name, sent = json.loads(line)
            taken[name] = max(taken.get(name, 0), sent / 1e6)
    for name, began, ended in spans:
        stalls.setdefault(name, []).append(delays.longest_ms(began, ended))
    for name in floods:
        stall = statistics.median(stalls[name])
        report.add(f"flooding_upstream_stall_{name}", stall, "ms", must=_STALL_MUST, better="lower", n=times)
    report.add("flooding_upstream_growth", max(growth.values()), "MB", must=_GROWTH_MUST, better="lower", n=len(growth))
    idle = {name: size for name, size in taken.items() if "token" not in name}
    report.add("flooding_upstream_taken", max(idle.values()), "MB", must=_TAKEN_MUST, better="lower", n=len(idle))


def _flood(gateway: Service, name: str) -> None:
    """Ask for a flood and read what comes of it, for some seconds at most."""
    is_streamed = not name.startswith(("whole", "error"))
    body = json.dumps({"model": name, "stream": is_streamed, "messages": [{"role": "user", "content": name}]}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {_KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    ends = time.monotonic() + _SECONDS
    with socket.create_connection(("127.0.0.1", _port(gateway)), _SECONDS) as line:
        line.sendall(head.encode() + body)
        try:
            while time.monotonic() < ends and line.recv(1 << 20):
                pass
        except OSError:
            pass
    time.sleep(0.1)


@contextmanager
def _flooding() -> Iterator[tuple[subprocess.Popen[str], int, list[str]]]:
    command = [sys.executable, "-c", _SERVER]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port, floods = json.loads(server.stdout.readline())
        yield server, port, floods
    finally:
        server.kill()
        server.wait()


def _port(gateway: Service) -> int:
    return int(gateway.ready_url.rpartition(":")[2].partition("/")[0])


@contextmanager
def _gateway(home: Path, upstream: int, floods: list[str]) -> Iterator[Service]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    target: dict[str, Any] = {"name": "t", "kind": "openai_http", "url": f"http://127.0.0.1:{upstream}/v1"}
    pools = [{"name": name, "targets": [target]} for name in floods]  # each has a circuit breaker of its own
    models = [{"name": name, "pool": name} for name in floods]
    file = home / "gateway.yaml"
    file.write_text(yaml.safe_dump({"keys": [{"key": _KEY, "tenant": "acme"}], "pools": pools, "models": models}))
    environment = {"TOLLKEEPER_GATEWAY_CONFIG": str(file), "TOLLKEEPER_GATEWAY_PORT": str(port)}
    service = Service("gateway", "gateway", home, f"http://127.0.0.1:{port}/ready", environment)
    try:
        service.start()
        yield service
    finally:
        service.end()
