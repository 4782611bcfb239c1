"""Other processes that die, hang and come back: what GET /ready, the metrics and the log say, and how soon."""

import asyncio
import logging

import pytest

from backends.processes import process_watch
from contracts.errors import ConfigurationError
from gateway.observability.process_watch import read_addresses


class Peer:
    """A server that answers, or accepts connections and says nothing."""

    def __init__(self) -> None:
        self.is_frozen = False
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> "Peer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/health"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        while self.is_frozen:
            await asyncio.sleep(0.01)
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        writer.close()


def configuration_of(kit):
    return kit.configuration(("scripted-1", [kit.scripted()]))


@pytest.fixture
async def peer():
    made = await Peer().start()
    yield made
    await made.stop()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(process_watch, "_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(process_watch, "_TICK_SECONDS", 0.02)


async def test_a_process_that_hangs_or_dies_is_noticed_and_said_once(start_gateway, kit, peer, eventually, caplog):
    caplog.set_level(logging.INFO)
    gateway = await start_gateway(
        kit.configuration(("scripted-1", [kit.scripted()])), watched_processes=f"control={peer.url}"
    )

    def state() -> object:
        return gateway.gateway.health()["processes"]["control"]["state"]

    await eventually(lambda: state() == "up", 5.0)
    assert gateway.gateway.health()["degraded"] == []
    peer.is_frozen = True
    await eventually(lambda: state() == "hung", 5.0)
    page = gateway.gateway.health()
    assert page["degraded"] == ["processes_away"] and page["status"] == "ready"
    assert "did not answer" in page["processes"]["control"]["detail"]
    metrics = (await gateway.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).body.decode()
    assert 'tollkeeper_process_up{process="control"} 0' in metrics
    await asyncio.sleep(0.3)
    assert [record.message for record in caplog.records].count("process hung") == 1
    peer.is_frozen = False
    await eventually(lambda: state() == "up", 5.0)
    await peer.stop()
    await eventually(lambda: state() == "away", 5.0)
    await peer.start()
    await eventually(lambda: gateway.gateway.health()["degraded"] == [], 5.0)
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == ["process hung", "process away"]


async def test_a_process_that_has_not_started_yet_is_no_alarm(start_gateway, kit, peer, eventually):
    await peer.stop()
    gateway = await start_gateway(
        kit.configuration(("scripted-1", [kit.scripted()])), watched_processes=f"analytics={peer.url}"
    )
    await asyncio.sleep(0.3)
    assert gateway.gateway.health()["processes"]["analytics"]["state"] == "unknown"
    assert gateway.gateway.health()["degraded"] == []


@pytest.mark.parametrize("text", ["control", "control=", "a b=http://x/", "control=ftp://x/", "control=http://"])
def test_addresses_that_are_none_are_refused(text):
    with pytest.raises(ConfigurationError):
        read_addresses(text)


def test_addresses_are_read():
    assert read_addresses(" a=http://x:1/ , b=https://y/h?x=1,") == {"a": "http://x:1/", "b": "https://y/h?x=1"}
