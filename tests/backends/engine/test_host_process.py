"""`python -m backends.engine` as a process: its socket, its start, its end, and what it leaves when it is killed."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.engine.wire import Finished
from tests.backends.engine.host_client import HostClient, make_submit

PATIENCE_SECONDS = 120.0


class HostProcess:
    """A host in a process of its own. Without a model unless told."""

    def __init__(self, data: Path, module: str = "backends.engine", **settings: str) -> None:
        self.path = data / "run" / "engine-default.sock"
        self.clients: list[HostClient] = []
        self.log = data.parent / f"{time.monotonic_ns()}.log"
        names = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
        told = {"TOLLKEEPER_DATA": str(data), "TOLLKEEPER_ENGINE_MODEL": "none", "TOLLKEEPER_ENGINE_EMBEDDER": "false"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module], env=names | told | settings, stdout=log, stderr=log
            )

    async def client(self) -> HostClient:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            try:
                self.clients.append(await HostClient.open(self.path))
                return await self.clients[-1].attach()
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(0.01)

    async def end(self) -> int:
        return await asyncio.to_thread(self.process.wait, PATIENCE_SECONDS)


@pytest.fixture
async def processes() -> AsyncIterator[list[HostProcess]]:
    started: list[HostProcess] = []
    yield started
    for one in started:
        for client in one.clients:
            await client.close()
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


@pytest.fixture
def start(tmp_path: Path, processes: list[HostProcess]):
    def make(module: str = "backends.engine", **settings: str) -> HostProcess:
        processes.append(HostProcess(tmp_path / "data", module, **settings))
        return processes[-1]

    return make


SCRIPTED = {"TOLLKEEPER_ENGINE_MODEL": "scripted=scripted", "SCRIPT_STEP_SECONDS": "0.002"}


@pytest.mark.drill  # an installation of tests/e2e is served by it too
async def test_the_built_in_model_is_served_without_any_setting(start) -> None:
    host = start(TOLLKEEPER_ENGINE_MODEL="")
    client = await (await host.client()).ready("builtin")
    submit = make_submit(1, [40, 50, 60], model="builtin", max_tokens=8)
    assert (await client.run(submit)).finish_reason == "length"
    await client.close()
    host.process.send_signal(signal.SIGTERM)
    assert await host.end() == 0


async def test_the_socket_is_for_its_owner_only_and_gone_afterwards(start) -> None:
    host = start()
    client = await host.client()
    assert stat.S_IMODE(host.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(host.path.parent.stat().st_mode) == 0o700
    await client.close()
    host.process.send_signal(signal.SIGTERM)
    assert await host.end() == 0
    assert not host.path.exists()


async def test_a_second_host_at_the_same_socket_says_one_line(start) -> None:
    first = start()
    client = await first.client()
    second = start()
    assert await second.end() == 2
    (line,) = second.log.read_text().splitlines()
    assert line.startswith("engine: an engine host is already listening at ")
    assert (await client.call("health")).ok


async def test_what_a_killed_host_leaves_is_removed_by_the_next(start) -> None:
    first = start()
    client = await first.client()
    first.process.kill()
    await first.end()
    await client.until_closed()
    assert first.path.is_socket()
    second = start()
    assert (await (await second.client()).call("health")).ok


async def test_another_server_at_the_path_is_left_alone(start, tmp_path: Path) -> None:
    path = tmp_path / "data" / "run" / "engine-default.sock"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        host = start()
        assert await host.end() == 2
        assert "already listening" in host.log.read_text()
        assert path.is_socket()


async def test_a_file_at_the_path_is_left_alone(start, tmp_path: Path) -> None:
    path = tmp_path / "data" / "run" / "engine-default.sock"
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    host = start()
    assert await host.end() == 2
    assert "cannot be bound" in host.log.read_text()
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"TOLLKEEPER_ENGINE_SOCKET": "/tmp/" + "x" * 120}, "longer than the 107 bytes"),
        ({"TOLLKEEPER_ENGINE_SOCKET": "/proc/nowhere/e.sock"}, "cannot be made"),
        ({"TOLLKEEPER_ENGINE_NAME": "a/b"}, "TOLLKEEPER_ENGINE_NAME"),
        ({"TOLLKEEPER_ENGINE_DTYPE": "int3"}, "TOLLKEEPER_ENGINE_DTYPE"),
        ({"TOLLKEEPER_ENGINE_MODEL": "a=x,a=y"}, "names 'a' twice"),
        ({"TOLLKEEPER_ENGINE_MODEL": "a=x,,b=y"}, "empty entry"),
        ({"TOLLKEEPER_ENGINE_MODEL": "", "TOLLKEEPER_ENGINE_ADAPTERS": "x"}, "is not name=directory"),
        ({"TOLLKEEPER_ENGINE_MAX_BATCH_TOKENS": "8"}, "TOLLKEEPER_ENGINE_MAX_SEQUENCES 64"),
    ],
)
async def test_a_setting_that_cannot_be_is_one_line(start, settings: dict[str, str], words: str) -> None:
    host = start(**settings)
    assert await host.end() == 2
    (line,) = host.log.read_text().splitlines()
    assert line.startswith("engine: ") and words in line


async def test_a_stop_lets_requests_end(start) -> None:
    host = start("bench.scripted_host", **SCRIPTED)
    client = await (await host.client()).ready("scripted")
    submit = make_submit(1, [1], model="scripted", max_tokens=300)
    client.send(submit)
    await client.until(lambda: bool(client.deltas(submit.request_id)))
    host.process.send_signal(signal.SIGTERM)
    await client.until(lambda: client.states("scripted")[-1] == "draining")
    assert (await client.run(make_submit(2, [1], model="scripted"))).error_code == "draining"
    assert (await client.end(submit.request_id)).finish_reason == "length"
    assert len(client.token_ids(submit.request_id)) == 300
    await client.until_closed()
    assert await host.end() == 0
    records = client.step_records()
    assert [number for number, _ in records] == list(range(1, len(records) + 1))
    assert len(records) >= 300


async def test_a_stop_aborts_what_takes_longer_than_the_drain_time(start) -> None:
    host = start("bench.scripted_host", TOLLKEEPER_ENGINE_DRAIN_SECONDS="0.3", **SCRIPTED)
    client = await (await host.client()).ready("scripted")
    submit = make_submit(1, [1], model="scripted", max_tokens=10**9)
    client.send(submit)
    await client.until(lambda: bool(client.deltas(submit.request_id)))
    host.process.send_signal(signal.SIGTERM)
    end = await client.end(submit.request_id)
    assert (end.finish_reason, end.error_code) == ("error", "draining")
    assert end.usage.output_text == len(client.token_ids(submit.request_id))
    assert await host.end() == 0


async def test_a_second_signal_ends_the_waiting(start) -> None:
    host = start("bench.scripted_host", TOLLKEEPER_ENGINE_DRAIN_SECONDS="600", **SCRIPTED)
    client = await (await host.client()).ready("scripted")
    client.send(make_submit(1, [1], model="scripted", max_tokens=10**9))
    await client.until(lambda: bool(client.messages[-1:]))
    host.process.send_signal(signal.SIGTERM)
    await client.until(lambda: client.states("scripted")[-1] == "draining")
    host.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert await host.end() == 0
    assert time.monotonic() - began < 10
    assert client.of(Finished)


async def test_a_gateway_survives_the_death_of_its_host(start) -> None:
    host = start("bench.scripted_host", **SCRIPTED)
    client = await (await host.client()).ready("scripted")
    client.send(make_submit(1, [1], model="scripted", max_tokens=10**9))
    host.process.kill()
    await client.until_closed()
