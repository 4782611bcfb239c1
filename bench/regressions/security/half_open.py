"""Half-open connections from one address: is anyone else still served?

Starts a gateway, opens more half-open connections from one address than the gateway holds in all, and meanwhile asks
for `/health` from another address and from this machine's own, on fresh connections. The flood goes on until the last
answer: connections that the gateway closed are opened again.
"""

import contextlib
import json
import multiprocessing
import resource
import socket
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

from bench.crashing.service import Service
from bench.fleet.fleet import configuration
from bench.load.processes import free_ports
from bench.report import Report

_CONNECTIONS: Final = 10_050  # the gateway's limit is 10,000
_FLOODER, _ANOTHER, _PROBE = "127.0.0.2", "127.0.0.3", "127.0.0.1"
_HALF: Final = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Half: "
_HEALTH: Final = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_ASKED_SECONDS: Final = 14.0  # longer than a head may take (10 s), so that the flood is renewed once
_BETWEEN_SECONDS: Final = 0.2
_PATIENCE_SECONDS: Final = 5.0
_FILLED_SECONDS: Final = 60.0
_SPARE_FILES: Final = 200


def measure(report: Report) -> None:
    """Flood a gateway and count who else is answered."""
    needed = _CONNECTIONS + _SPARE_FILES
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise RuntimeError(f"half_open needs {needed} open files a process; the hard limit is {hard}")
    with tempfile.TemporaryDirectory(prefix="tollkeeper-half-open-") as home:
        port = free_ports(1)
        config = Path(home) / "gateway.yaml"
        config.write_text(json.dumps(configuration(["acme"])))
        settings = {"TOLLKEEPER_GATEWAY_PORT": str(port), "TOLLKEEPER_GATEWAY_CONFIG": str(config)}
        gateway = Service("gateway", "gateway", Path(home), f"http://127.0.0.1:{port}/health", settings)
        gateway.start()
        try:
            opened, answers = _under_flood(port)
        finally:
            gateway.end()
    report.add("half_open_connections", opened, "connections", must=_CONNECTIONS, better="higher")
    for name, address in (("another_address", _ANOTHER), ("this_machine", _PROBE)):
        found = answers[address]
        served = 100.0 * sum(found) / len(found)
        report.add(f"half_open_health_from_{name}", served, "%", must=100, better="higher", n=len(found))


def _under_flood(port: int) -> tuple[int, dict[str, list[bool]]]:
    context = multiprocessing.get_context("spawn")
    filled, over = context.Event(), context.Event()
    count = context.Value("q", 0)
    flood = context.Process(target=_flood, args=(port, filled, over, count), daemon=True)
    flood.start()
    answers: dict[str, list[bool]] = {_ANOTHER: [], _PROBE: []}
    try:
        if not filled.wait(_FILLED_SECONDS):
            raise RuntimeError("the half-open connections were not opened in time")
        deadline = time.monotonic() + _ASKED_SECONDS
        while time.monotonic() < deadline:
            for address, found in answers.items():
                found.append(_is_well(port, address))
            time.sleep(_BETWEEN_SECONDS)
    finally:
        over.set()
        flood.join(_PATIENCE_SECONDS)
        flood.kill()
    return int(count.value), answers


def _flood(port: int, filled: Event, over: Event, count: "multiprocessing.sharedctypes.Synchronized[int]") -> None:
    """Open connections with half a head each, and open again what the gateway closes."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held: list[socket.socket] = []
    for _ in range(_CONNECTIONS):
        with contextlib.suppress(OSError):
            held.append(_half_open(port))
            count.value += 1
    filled.set()
    while not over.is_set():
        for number, each in enumerate(held):
            if over.is_set():
                break
            with contextlib.suppress(OSError):
                if _is_closed(each):
                    each.close()
                    held[number] = _half_open(port)


def _half_open(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), _PATIENCE_SECONDS, source_address=(_FLOODER, 0))
    made.sendall(_HALF)
    made.setblocking(False)
    return made


def _is_closed(connection: socket.socket) -> bool:
    try:
        return not connection.recv(4096)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _is_well(port: int, address: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), _PATIENCE_SECONDS, source_address=(address, 0)) as asked:
            asked.sendall(_HEALTH)
            return asked.recv(100).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
