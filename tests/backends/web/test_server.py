"""Our uvicorn: it serves, sleeps between seconds, and ends at once if it is told to."""

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from typing import Any

import pytest
import uvicorn

from backends.web.server import ServerWithoutSignals
from tests.ports import find_free_ports
from tests.steady_time import poll_within


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def config(port: int = 0) -> uvicorn.Config:
    return uvicorn.Config(answer, port=port, lifespan="off", log_config=None, access_log=False)


class Counted(ServerWithoutSignals):
    ticks = 0

    async def on_tick(self, counter: int) -> bool:
        self.ticks += 1
        return await super().on_tick(counter)


@pytest.mark.parametrize("is_other_thread", [False, True])
async def test_a_server_that_is_told_to_end_does_not_wait_for_its_next_second(
    monkeypatch: pytest.MonkeyPatch, is_other_thread: bool
) -> None:
    monkeypatch.setattr("backends.web.server.until_beat", lambda seconds: 3600.0)  # it would sleep for an hour
    server = Counted(config())
    serving = asyncio.ensure_future(server.serve())
    while not server.ticks:
        await asyncio.sleep(0.01)
    if is_other_thread:
        thread = threading.Thread(target=setattr, args=(server, "should_exit", True))
        thread.start()
        thread.join()
    else:
        server.should_exit = True
    await serving
    assert server.ticks == 2, "nothing but the end wakes it"


async def test_a_server_that_is_told_to_end_before_it_serves_ends() -> None:
    server = ServerWithoutSignals(config())
    server.should_exit = True
    await server.serve()
    assert server.should_exit


async def test_each_tick_makes_the_date_of_responses_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.web.server.until_beat", lambda seconds: 0.0)
    server = Counted(config())
    serving = asyncio.ensure_future(server.serve())
    while server.ticks < 3:
        await asyncio.sleep(0)
    before = server.server_state.default_headers
    while server.ticks < 6:
        await asyncio.sleep(0)
    assert server.server_state.default_headers is not before
    server.should_exit = True
    await serving


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_signal_ends_a_server_that_sleeps(number: signal.Signals, loop: str) -> None:
    (port,) = find_free_ports(1)
    script = (
        "import signal, uvicorn, backends.web.server as ours; from tests.backends.web.test_server import answer\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # what runs in the background ignores it
        "ours.until_beat = lambda seconds: 3600.0\n"
        f"ours.Server(uvicorn.Config(answer, port={port}, lifespan='off', log_config=None, loop={loop!r})).run()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    try:
        assert poll_within(lambda: answers(port), 60), "it serves"
        process.send_signal(number)
        assert process.wait(60) != 0, "uvicorn raises the signal again when it has ended"
    finally:
        process.kill()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) != 0:
            return False
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as reply:
        return bool(reply.status == 204)
