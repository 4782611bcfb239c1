"""A rolling restart under load, rehearsed with real processes: HAProxy with our configuration, TLS, two gateways.

They get what a rolling restart sends them, in that order: the balancer sends no more to a gateway (HAProxy's `drain`;
in Kubernetes the pod leaves its Service before `preStop` ends), what is in progress ends, SIGTERM, the process's end, a
new process, ready, and requests again.
"""

import asyncio
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from bench.fleet.fleet import Fleet, chat_body, configuration, key_of
from bench.fleet.gateway import free_port
from bench.fleet.redis_server import RedisServer
from tests.certificates import Authority

pytestmark = [pytest.mark.e2e, pytest.mark.service, pytest.mark.alone, pytest.mark.drill]

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
CALLERS = 12
POLL_SECONDS = 0.2


@dataclass
class Seen:
    """What callers were answered."""

    whole: int = 0
    faults: list[str] = field(default_factory=list)


class Balancer:
    """HAProxy from our file, with the ports of this test in place of compose's names."""

    def __init__(self, home: Path, gateways: list[int]) -> None:
        self.port, self._admin, self._health = free_port(), free_port(), free_port()
        issued = Authority(home).issue("proxy", "localhost", "127.0.0.1")
        certificates = home / "certificates"
        certificates.mkdir()
        (certificates / "site.pem").write_text(issued.certificate.read_text() + issued.key.read_text())
        self.authority = home / "authority.pem"
        text = FILE.read_text()
        replaced = {
            "bind :8443": f"bind 127.0.0.1:{self.port}",
            "/etc/haproxy/certificates/": f"{certificates}/",
            "ipv4@127.0.0.1:9999": f"ipv4@127.0.0.1:{self._admin}",
            "bind :8404": f"bind 127.0.0.1:{self._health}",
            "log stdout": "log 127.0.0.1:9",
            "maxconn 20000": "maxconn 500",
            "hdr Host gateway": "hdr Host localhost",  # on a loopback address names are checked
            **{f"gateway-{n} gateway-{n}:8080": f"gateway-{n} 127.0.0.1:{port}" for n, port in enumerate(gateways, 1)},
        }
        for ours, theirs in replaced.items():
            assert text.count(ours) == 1, f"{ours!r} is not in {FILE.name} once"
            text = text.replace(ours, theirs)
        self._file = home / "haproxy.cfg"
        self._file.write_text(text)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        process = subprocess.Popen(["haproxy", "-db", "-f", str(self._file)], stderr=subprocess.PIPE)
        try:
            for name in ("gateway-1", "gateway-2"):
                await self.until(name, "UP")
            yield
        finally:
            process.kill()
            process.communicate()

    def tell(self, command: str) -> str:
        """A command of HAProxy's runtime API, as deploy/haproxy/rolling-restart.sh gives it."""
        with socket.create_connection(("127.0.0.1", self._admin), timeout=10) as line:
            line.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: line.recv(65536), b"")).decode()

    def row(self, name: str) -> list[str]:
        rows = [line.split(",") for line in self.tell("show stat").splitlines()]
        return next(row for row in rows if row[:2] == ["gateways", name])

    async def until(self, name: str, state: str) -> None:
        for _ in range(600):
            try:
                if self.row(name)[17].startswith(state):
                    return
            except OSError:
                pass  # not listening yet
            await asyncio.sleep(POLL_SECONDS / 2)
        pytest.fail(f"HAProxy does not call {name} {state}: {self.row(name)[17]}")

    async def until_quiet(self, name: str) -> None:
        while int(self.row(name)[4]):  # current sessions, as the script reads them
            await asyncio.sleep(POLL_SECONDS)


async def call(client: httpx.AsyncClient, number: int, seen: Seen, stop: asyncio.Event) -> None:
    """Ask again and again: streams and whole answers, short ones and some of seconds, small and large prompts."""
    turn = number
    while not stop.is_set():
        turn += 1
        streamed, is_long = turn % 2 == 0, turn % 5 == 0
        body = chat_body(6000 if turn % 7 == 0 else 20, 40, gap_ms=40.0 if is_long else 2.0, streamed=streamed)
        try:
            reply = await client.post("/v1/chat/completions", json=body)
            is_whole = reply.text.rstrip().endswith("data: [DONE]") if streamed else "choices" in reply.json()
            if reply.status_code == 200 and is_whole and '"error"' not in reply.text:
                seen.whole += 1
            else:
                seen.faults.append(f"{reply.status_code}: {reply.text[-200:]}")
        except (httpx.HTTPError, ValueError) as error:
            seen.faults.append(f"{type(error).__name__}: {error}")


async def test_restarting_both_gateways_under_load_fails_no_request(require_service, tmp_path: Path) -> None:
    require_service("haproxy", shutil.which("haproxy") is not None, "apt-get install haproxy")
    require_service("redis-server", RedisServer.is_installed(), "apt-get install redis-server")
    with RedisServer() as redis:
        async with Fleet(2, configuration(["acme"] * CALLERS), redis.url) as fleet:
            balancer = Balancer(tmp_path, fleet.ports)
            async with balancer.running():
                seen, stop = Seen(), asyncio.Event()
                trust = ssl.create_default_context(cafile=str(balancer.authority))
                headers = {"authorization": f"Bearer {key_of(0)}"}
                url = f"https://localhost:{balancer.port}"
                async with httpx.AsyncClient(base_url=url, verify=trust, headers=headers, timeout=60) as client:
                    callers = [asyncio.create_task(call(client, number, seen, stop)) for number in range(CALLERS)]
                    try:
                        for name, gateway in zip(("gateway-1", "gateway-2"), fleet.gateways, strict=True):
                            before = seen.whole
                            balancer.tell(f"set server gateways/{name} state drain")
                            await balancer.until_quiet(name)
                            await gateway.stop()
                            await gateway.start()
                            balancer.tell(f"set server gateways/{name} state ready")
                            await balancer.until(name, "UP")
                            assert seen.whole > before, "nobody was served meanwhile, so nothing was shown"
                            served = int(balancer.row(name)[7])
                            for _ in range(100):
                                await asyncio.sleep(POLL_SECONDS)
                                if int(balancer.row(name)[7]) > served + 10:
                                    break
                            assert int(balancer.row(name)[7]) > served, f"{name} gets no requests again"
                    finally:
                        stop.set()
                        await asyncio.gather(*callers)
            books = await fleet.close_books()
    assert seen.faults == []
    assert seen.whole > 50
    assert len(books.served) == seen.whole, "one record for each request"


def test_the_script_restarts_every_gateway_of_the_file() -> None:
    script = (ROOT / "deploy" / "haproxy" / "rolling-restart.sh").read_text()
    restarted = re.findall(r"^for gateway in (.+); do$", script, re.MULTILINE)[0].split()
    assert restarted == re.findall(r"^    server (\S+) ", FILE.read_text(), re.MULTILINE)
    assert subprocess.run(["bash", "-n", ROOT / "deploy" / "haproxy" / "rolling-restart.sh"]).returncode == 0
