"""Heads without end: how much memory one connection without a credential takes from each listener.

Starts the control plane, the collector, analytics and the dashboard, sends each 60 MB of short headers on one
connection, then to each port a header of 2 MB, 200 headers and 20,000 trailers; and opens 60,000 streams on one
connection to the collector's gRPC port.
"""

import contextlib
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.crashing.service import Service
from bench.load.processes import free_ports
from bench.regressions.security._delays import memory_bytes, reset_peak
from bench.report import Report
from migrations.database import migrate_database

_FLOOD_BYTES: Final = 60_000_000
_GROWTH_MUST: Final = 50.0  # MB
_FLOOD_SECONDS: Final = 20.0
_ANSWER_SECONDS: Final = 20.0
_STREAMS: Final = 60_000
_STREAMS_AT_ONCE: Final = 500
_SHORT: Final = b"X-A: b\r\n" * 8192
_CHUNKED: Final = b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
_HEADS: Final = {
    "header of 2 MB": b"X-Long: " + b"a" * 2_000_000 + b"\r\n\r\n",
    "200 headers": b"X-A: b\r\n" * 200 + b"\r\n",
    "20,000 trailers": _CHUNKED + b"X-A: b\r\n" * 20_000 + b"\r\n",
}


def measure(report: Report) -> None:
    """Add the growth of each process, and how many heads beyond the limits were accepted."""
    with tempfile.TemporaryDirectory(prefix="tollkeeper-heads-") as home, _processes(Path(home)) as ports:
        accepted, tried = 0, 0
        for service, listening in ports.items():
            for name, port in listening.items():
                grown = _growth(service, port)
                report.add(f"long_heads_growth_{name}", grown, "MB", must=_GROWTH_MUST, better="lower")
                for head in _HEADS.values():
                    accepted += _is_accepted(port, head)
                    tried += 1
        report.add("long_heads_accepted", accepted, "heads", must=0, better="lower", n=tried)
        collector = next(service for service in ports if service.name == "collector")
        grown = _growth_by_streams(collector, int(collector.environment["TOLLKEEPER_OTLP_GRPC_PORT"]))
        report.add("long_heads_growth_grpc_streams", grown, "MB", must=_GROWTH_MUST, better="lower", n=_STREAMS)


@contextmanager
def _processes(home: Path) -> Iterator[dict[Service, dict[str, int]]]:
    """Start the four processes; yield the HTTP ports of each by name."""
    first = free_ports(7)
    control, analytics, collector, health, grpc, dashboard, store = range(first, first + 7)
    listening = {
        ("control", "gateway.control", "/health"): {"control": control},
        ("analytics", "analytics", "/health"): {"analytics": analytics},
        ("collector", "collector", "/health"): {"collector_health": health, "collector": collector},
        ("dashboard", "dashboard", "/_stcore/health"): {"dashboard": dashboard},
    }
    settings = {
        "TOLLKEEPER_CONTROL_PORT": str(control),
        "TOLLKEEPER_CONTROL_URL": f"http://127.0.0.1:{control}",
        "TOLLKEEPER_ANALYTICS_PORT": str(analytics),
        "TOLLKEEPER_COLLECTOR_PORT": str(collector),
        "TOLLKEEPER_COLLECTOR_HEALTH_PORT": str(health),
        "TOLLKEEPER_OTLP_GRPC_PORT": str(grpc),
        "TOLLKEEPER_DASHBOARD_PORT": str(dashboard),
        "TOLLKEEPER_STORE_URL": f"http://127.0.0.1:{store}",  # there is none
    }
    started: dict[Service, dict[str, int]] = {}
    try:
        for (name, module, path), ports in listening.items():
            port = next(iter(ports.values()))
            service = Service(name, module, home, f"http://127.0.0.1:{port}{path}", settings)
            started[service] = ports
            migrate_database(f"sqlite:///{service.data / 'control.db'}", say=lambda line: None)
            service.start()
        yield started
    finally:
        for service in started:
            service.end()


def _growth(service: Service, port: int) -> float:
    """Return by how many MB a process grew at most for one head of 60 MB."""
    _answers(port, b"Connection: close\r\n\r\n")
    before = memory_bytes(service.process_id, "VmRSS")
    reset_peak(service.process_id)
    with socket.create_connection(("127.0.0.1", port), _FLOOD_SECONDS) as line:
        ends = time.monotonic() + _FLOOD_SECONDS
        with contextlib.suppress(OSError):
            line.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
            for _ in range(_FLOOD_BYTES // len(_SHORT)):
                if time.monotonic() > ends:
                    break
                line.sendall(_SHORT)
    return (memory_bytes(service.process_id, "VmHWM") - before) / 1e6


def _is_accepted(port: int, head: bytes) -> bool:
    """Return whether a request with such a head is taken: then a second one on its connection is answered too."""
    again = b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    return _answers(port, head, again) > 1


def _answers(port: int, head: bytes, after: bytes = b"") -> int:
    answer = b""
    with socket.create_connection(("127.0.0.1", port), _ANSWER_SECONDS) as line, contextlib.suppress(OSError):
        with contextlib.suppress(OSError):
            line.sendall(b"POST /health HTTP/1.1\r\nHost: localhost\r\n" + head + after)
        while piece := line.recv(65536):
            answer += piece
    return answer.count(b"HTTP/1.1 ")


def _growth_by_streams(service: Service, port: int) -> float:
    """Return by how many MB a collector grew at most for calls that are begun on one connection and never ended."""
    before = memory_bytes(service.process_id, "VmRSS")
    reset_peak(service.process_id)
    path = b"/opentelemetry.proto.collector.logs.v1.LogsService/Export"
    head = b"".join(
        b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value
        for name, value in (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path),
            (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
    )
    with socket.create_connection(("127.0.0.1", port), _FLOOD_SECONDS) as line, contextlib.suppress(OSError):
        threading.Thread(target=_discard, args=(line,), daemon=True).start()
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0) + _frame(4, 1, 0))
        for first in range(0, _STREAMS, _STREAMS_AT_ONCE):
            line.sendall(b"".join(_frame(1, 4, 2 * (first + number) + 1, head) for number in range(_STREAMS_AT_ONCE)))
    return (memory_bytes(service.process_id, "VmHWM") - before) / 1e6


def _discard(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while line.recv(65536):
            pass


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload
