"""Two gateways at one Redis: what one leaves alone the other looks into, and both show it."""

import asyncio
import json
import os
import sys

import pytest
import yaml

from tests.backends.counters.redis_server import RedisServer

pytestmark = pytest.mark.service

PATIENCE_SECONDS = 120.0


class GatewayProcess:
    """`python -m gateway` with one file, at a port of its own."""

    def __init__(self, folder, port, kit):
        self.folder, self.port, self.kit = folder, port, kit

    async def start(self, config, redis_url):
        self.folder.mkdir()
        (self.folder / "gateway.yaml").write_text(yaml.safe_dump(config))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
        environment |= {
            "TOLLKEEPER_DATA": str(self.folder / "data"),
            "TOLLKEEPER_GATEWAY_CONFIG": str(self.folder / "gateway.yaml"),
            "TOLLKEEPER_GATEWAY_PORT": str(self.port),
            "TOLLKEEPER_REDIS_URL": redis_url,
        }
        command = [sys.executable, "-m", "gateway"]
        self.process = await asyncio.create_subprocess_exec(
            *command, env=environment, stderr=asyncio.subprocess.DEVNULL
        )

    async def ask(self, data):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        writer.close()
        return int(head.split()[1]), body

    async def ready(self):
        return (await self.ask(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n"))[1]

    async def until(self, wanted):
        """Wait until `wanted` holds of what GET /ready shows as left alone; return that."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    away = (await self.ready())["targets_away"]
                    if wanted(away):
                        return away
                except OSError:
                    pass  # it has not begun to listen
                await asyncio.sleep(0.05)


@pytest.fixture
async def pair(tmp_path, kit, upstream, free_ports, require_service):
    require_service("redis-server", RedisServer.is_installed(), "apt-get install redis-server")
    server = RedisServer()
    server.start()
    config = kit.configuration(("scripted-1", [kit.http_target(upstream.url, name="shaky"), kit.scripted("spare")]))
    breaker = {"failures_in_a_row": 3, "first_pause_seconds": 60, "longest_pause_seconds": 60}
    config["pools"][0] |= {"policy": "round_robin", "failures": {"breaker": breaker, "retries": 0}}
    gateways = [GatewayProcess(tmp_path / f"gateway-{port}", port, kit) for port in free_ports(2)]
    try:
        for gateway in gateways:
            await gateway.start(config, server.url)
        for gateway in gateways:
            await gateway.until(lambda away: True)
        yield gateways
    finally:
        for gateway in gateways:
            gateway.process.kill()
            await gateway.process.wait()
        server.close()


async def test_a_breaker_that_opens_at_one_gateway_is_seen_and_looked_into_at_the_other(pair, kit, upstream):
    one, two = pair
    upstream.always(upstream.whole({"error": {"message": "down"}}, status=500))
    for _ in range(8):
        assert (await one.ask(kit.request()))[0] == 200  # the spare one answers
    opened = await one.until(lambda away: away)
    assert opened["scripted-1/shaky"]["state"] == "open"
    seen = await two.until(lambda away: away)
    assert seen["scripted-1/shaky"]["state"] == "half_open"
    assert "at gateway" in seen["scripted-1/shaky"]["why"]
    upstream.always(upstream.whole(upstream.completion("back")))
    asked = len(upstream.requests)
    _, answer = await two.ask(kit.request())
    assert answer["choices"][0]["message"]["content"] == "back" and len(upstream.requests) == asked + 1
    await two.until(lambda away: not away)  # its own eyes, not another's word
    assert (await one.ready())["targets_away"]["scripted-1/shaky"]["state"] == "open"
    assert "targets_away" in (await one.ready())["degraded"]
