"""Every HTTP listener that is not the data plane's, as its process serves it: shares by address, slow heads, names."""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ports import find_free_ports

PATIENCE = 60.0
STRANGER = "127.0.0.2"
LIMITS = {
    "TOLLKEEPER_MAX_CONNECTIONS": "12",
    "TOLLKEEPER_MAX_CONNECTIONS_PER_ADDRESS": "3",
    "TOLLKEEPER_HEAD_SECONDS": "2",
    "TOLLKEEPER_ALLOWED_HOSTS": "llm.example",
}
UPGRADE = (
    "GET /_stcore/stream HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
LISTENERS = {
    "control": ("gateway.control", "TOLLKEEPER_CONTROL_PORT", "/health"),
    "analytics": ("analytics", "TOLLKEEPER_ANALYTICS_PORT", "/health"),
    "collector": ("collector", "TOLLKEEPER_COLLECTOR_PORT", ""),
    "collector_health": ("collector", "TOLLKEEPER_COLLECTOR_HEALTH_PORT", "/health"),
    "dashboard": ("dashboard", "TOLLKEEPER_DASHBOARD_PORT", "/_stcore/health"),
}


@dataclass
class Listener:
    name: str
    port: int
    health: str
    data: Path

    def connect(self, address: str = STRANGER, data: bytes = b"") -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=10, source_address=(address, 0))
        if data:
            made.sendall(data)
        return made

    def ask(self, path: str, host: str = "127.0.0.1", more: str = "", address: str = "127.0.0.1") -> tuple[int, str]:
        """Return the status and all that came until the server closed or was silent."""
        with self.connect(address) as made:
            made.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n".encode())
            data = b""
            while piece := made.recv(65536):
                data += piece
        return int(data.split(b" ", 2)[1]), data.decode(errors="replace")

    @property
    def well(self) -> int:
        """The status of a request that is answered well or, where there is only POST, told so."""
        return 200 if self.health else 405

    @property
    def path(self) -> str:
        return self.health or "/v1/logs"


@pytest.fixture(scope="module", params=LISTENERS)
def listener(
    request: pytest.FixtureRequest, migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Listener]:
    module, port_setting, health = LISTENERS[request.param]
    data: Path = tmp_path_factory.mktemp(request.param)
    shutil.copy(migrated_sqlite, data / "control.db")
    ports = find_free_ports(4)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")},
        **LIMITS,
        "TOLLKEEPER_DATA": str(data),
        "TOLLKEEPER_STORE_URL": f"http://127.0.0.1:{ports[0]}",
        "TOLLKEEPER_COLLECTOR_PORT": str(ports[1]),
        "TOLLKEEPER_COLLECTOR_HEALTH_PORT": str(ports[2]),
        "TOLLKEEPER_OTLP_GRPC_PORT": "0",
        "TOLLKEEPER_CONTROL_URL": f"http://127.0.0.1:{ports[0]}",
        port_setting: str(ports[3]),
    }
    log = data / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-m", module], env=environment, stdout=output, stderr=output)
    made = Listener(request.param, ports[3], health, data)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            try:
                assert made.ask(made.path)[0] == made.well
                break
            except OSError:
                time.sleep(0.1)
        yield made
    finally:
        process.terminate()
        process.wait(30)


def answers_to(listener: Listener, pieces: Sequence[bytes]) -> str:
    """Return all that came until the server closed. What it does not take is not sent."""
    with listener.connect() as made:
        made.settimeout(20)
        data = b""
        try:
            for piece in pieces:
                made.sendall(piece)
        except OSError:
            pass
        try:
            while piece := made.recv(65536):
                data += piece
        except ConnectionError:
            pass
    return data.decode()


def head_of(listener: Listener, more: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\n%b" % (listener.path.encode(), more)


CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
LONG_HEADS = {
    "one header of 2 MB": (b"X-Long: " + b"a" * 2_000_000 + b"\r\n\r\n", 431, "headers_too_large"),
    "one header that does not end": (b"X-Long: " + b"a" * 40_000, 431, "headers_too_large"),
    "200 headers": (b"X-A: b\r\n" * 200 + b"\r\n", 431, "headers_too_large"),
    "short headers without end": (b"X-A: b\r\n" * 100_000, 431, "headers_too_large"),
    "99 headers of 400 bytes": (b"X-A: %b\r\n" % (b"b" * 400) * 99 + b"\r\n", 431, "headers_too_large"),
    "20,000 trailers": (
        CHUNKED + b"1\r\na\r\n0\r\n" + b"X-A: b\r\n" * 20_000 + b"\r\n",
        431,
        "headers_too_large",
    ),
    "two lengths": (b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "ambiguous_framing"),
    "a header without a colon": (b"X-Broken\r\n\r\n", 400, "ambiguous_framing"),
}


@pytest.mark.parametrize("case", LONG_HEADS)
def test_a_long_or_broken_head_is_refused_with_an_id_and_the_connection_closed(listener: Listener, case: str) -> None:
    rest, status, code = LONG_HEADS[case]
    answer = answers_to(listener, [head_of(listener) + rest])
    head, _, body = answer.partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ") and answer.count("HTTP/1.1 ") == 1
    assert json.loads(body)["error"]["code"] == code
    headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
    assert headers["connection"] == "close" and uuid.UUID(headers["x-request-id"])
    assert listener.ask(listener.path)[0] == listener.well


@pytest.mark.parametrize("body", [b"1\r\na\r\n0\r\nX-Long: ", b"1;x="])
def test_a_long_trailer_or_chunk_extension_ends_the_connection(listener: Listener, body: bytes) -> None:
    """Also behind the answer of an application that has not waited for the body."""
    answer = answers_to(listener, [head_of(listener) + CHUNKED + body + b"a" * 2_000_000])
    assert answer.startswith(("HTTP/1.1 431 ", "HTTP/1.1 4")) and answer.count("HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "start",
    [b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\r\n" * 20_000, b"G" * 100, b"\x16\x03\x01"],
)
def test_a_request_line_is_bounded_and_so_is_what_comes_before_it(listener: Listener, start: bytes) -> None:
    answer = answers_to(listener, [start])
    assert answer.startswith(("HTTP/1.1 431 ", "HTTP/1.1 400 ")) and "x-request-id: " in answer
    assert json.loads(answer.partition("\r\n\r\n")[2])["error"]["code"] in ("headers_too_large", "ambiguous_framing")


def test_a_body_declared_above_the_limit_is_refused_before_it_is_sent(listener: Listener) -> None:
    if listener.name in ("collector_health", "dashboard"):
        pytest.skip("it reads no bodies, or short forms alone")
    head = b"Content-Type: application/x-protobuf\r\nContent-Length: 99000000\r\n\r\n"
    with listener.connect(data=b"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\n" + head) as made:
        status = b"401" if listener.name == "control" else b"413"  # the control plane asks for the token first
        assert made.recv(100).startswith(b"HTTP/1.1 " + status)


def test_heads_up_to_the_limits_are_read(listener: Listener) -> None:
    padding = "".join(f"X-{number}: b\r\n" for number in range(98))  # with Host and Connection: 100
    assert listener.ask(listener.path, more=padding)[0] == listener.well
    assert listener.ask(listener.path, more=padding + "X-98: b\r\n")[0] == 431
    assert listener.ask(listener.path, more=f"X-Long: {'a' * 32_000}\r\n")[0] == listener.well
    assert listener.ask(listener.path, more=f"X-Long: {'a' * 32_768}\r\n")[0] == 431


def test_a_broken_request_behind_others_leaves_them_their_answers(listener: Listener) -> None:
    good = f"GET {listener.path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    for bad in (b"GET / HTTP/1.1\r\nX-Broken\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 200):
        answer = answers_to(listener, [good * 3 + bad])
        assert answer.count(f"HTTP/1.1 {listener.well} ") == 3


def test_requests_pipelined_without_end_are_not_kept(listener: Listener) -> None:
    good = f"GET {listener.path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    answer = answers_to(listener, [good * 1000])
    assert 1 <= answer.count(f"HTTP/1.1 {listener.well} ") <= 17


def is_closed(connection: socket.socket, within: float) -> bool:
    connection.settimeout(within)
    try:
        while connection.recv(65536):
            pass
        return True
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("data", [b"", b"POST /v1/logs HTTP/1.1\r\nX-Half: ", b"POST /v1/logs HTTP/1.1\r\nHost: "])
def test_an_address_beyond_its_share_loses_its_oldest_connection_and_others_are_served(
    listener: Listener, data: bytes
) -> None:
    held = []
    for _ in range(4):
        held.append(listener.connect(data=data))
        time.sleep(0.01)  # so that they are accepted, and idle, in this order
    assert is_closed(held[0], 5.0)
    for address in ("127.0.0.1", "127.0.0.3"):
        assert listener.ask(listener.path, address=address)[0] == listener.well
    for each in held:
        each.close()


def test_a_head_that_does_not_end_is_cut_off_and_so_is_one_behind_an_answer(listener: Listener) -> None:
    half = listener.connect(data=b"GET / HTTP/1.1\r\nX-Half: ")
    again = listener.connect(data=f"GET {listener.path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    again.settimeout(10)
    assert again.recv(65536).startswith(b"HTTP/1.1 ")
    again.sendall(b"GET / HTTP/1.1\r\nX-Half: ")
    assert is_closed(half, 20.0) and is_closed(again, 20.0)
    half.close()
    again.close()


def test_other_names_are_refused_on_a_loopback_port(listener: Listener) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "example"):
        status, answer = listener.ask(listener.path, host)
        assert status == 403 and json.loads(answer.partition("\r\n\r\n")[2])["error"]["code"] == "host_not_allowed"
        assert "access-control-allow-origin" not in answer.lower()
    port = listener.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "LOCALHOST.", f"[::1]:{port}", "llm.example", "10.1.2.3"):
        assert listener.ask(listener.path, host)[0] == listener.well, host


def test_a_websocket_counts_until_it_ends_and_health_checks_get_in_beside(listener: Listener) -> None:
    if listener.name != "dashboard":
        pytest.skip("only the dashboard has WebSockets")
    foreign = listener.connect(data=UPGRADE.format("evil.example").encode())
    assert foreign.recv(100).startswith(b"HTTP/1.1 403")
    foreign.close()
    held = [listener.connect(data=UPGRADE.format("localhost").encode()) for _ in range(3)]
    assert all(each.recv(1000).startswith(b"HTTP/1.1 101") for each in held)
    assert listener.ask("/", address=STRANGER)[0] == 503, "its share is busy"
    assert listener.ask(listener.health, address=STRANGER)[0] == 200
    held[0].close()
    deadline = time.monotonic() + 10
    while listener.ask("/", address=STRANGER)[0] == 503:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for each in held:
        each.close()


@pytest.mark.parametrize("frames", [[(0x82, 2**20 + 1)], [(0x02, 600_000), (0x80, 600_000)]])
def test_a_websocket_takes_no_message_above_a_mebibyte(listener: Listener, frames: list[tuple[int, int]]) -> None:
    if listener.name != "dashboard":
        pytest.skip("only the dashboard has WebSockets")
    with listener.connect(data=UPGRADE.format("localhost").encode()) as line:
        assert line.recv(1000).startswith(b"HTTP/1.1 101")
        data = b""
        with suppress(ConnectionError):
            for first, size in frames:
                line.sendall(bytes((first, 0xFF)) + struct.pack(">Q", size) + bytes(4) + bytes(size))
            while piece := line.recv(65536):
                data += piece
        assert struct.pack(">H", 1009) in data


def test_urllib_is_served(listener: Listener) -> None:
    """An ordinary client, with keep-alive as it has it."""
    if not listener.health:
        pytest.skip("there is only POST")
    with urllib.request.urlopen(f"http://localhost:{listener.port}{listener.health}", timeout=10) as answer:
        assert answer.status == 200


def test_a_stranger_is_told_the_status_alone(listener: Listener) -> None:
    if listener.name == "dashboard" or not listener.health:
        pytest.skip("its health page has no details")
    token = (listener.data / "secrets" / "metrics_token").read_text().strip()
    forwarded = "X-Forwarded-For: 203.0.113.9\r\n"
    for path in (listener.health, "/ready"):
        _, answer = listener.ask(path, more=forwarded)
        assert json.loads(answer.partition("\r\n\r\n")[2]).keys() <= {"status", "error"}
    shown = f"{forwarded}Authorization: Bearer {token}\r\n"
    if listener.name == "collector_health":
        details = json.loads(listener.ask("/ready", more=shown)[1].partition("\r\n\r\n")[2])
        assert "spool_bytes" in details
    if listener.name != "control":
        assert listener.ask("/metrics", more=forwarded)[0] == 401
        assert listener.ask("/metrics", more=shown)[0] in (200, 503), "there is no store here"
