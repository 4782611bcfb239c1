"""A gateway process that is told to stop: once, twice, or to drain and stay."""

import asyncio
import os
import signal
import sys

import pytest
import yaml


@pytest.fixture
async def start(tmp_path, kit, free_ports):
    """Start `python -m gateway` whose model stalls after 3 tokens; return the process and its port."""
    config = kit.configuration(("scripted-1", [kit.scripted(fault="stall", after=3)]))
    (tmp_path / "gateway.yaml").write_text(yaml.safe_dump(config))
    started = []

    async def start(**variables):
        [port] = free_ports(1)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
        environment |= {
            "TOLLKEEPER_DATA": str(tmp_path / "data"),
            "TOLLKEEPER_GATEWAY_CONFIG": str(tmp_path / "gateway.yaml"),
            "TOLLKEEPER_GATEWAY_PORT": str(port),
            **{f"TOLLKEEPER_{name.upper()}": str(value) for name, value in variables.items()},
        }
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", env=environment, stderr=asyncio.subprocess.PIPE, cwd=tmp_path
        )
        started.append(child)
        assert child.stderr is not None
        line = b""
        while b"gateway ready" not in line:
            line = await asyncio.wait_for(child.stderr.readline(), 20)
        return child, port

    yield start
    for child in started:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def begin_stream(port, kit) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(kit.request(stream=True))
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def status_of(port, data: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    line = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    return int(line.split()[1])


async def test_a_second_signal_ends_the_waiting(start, kit):
    child, port = await start(drain_seconds=600, drain_notice_seconds=600)
    reader, writer = await begin_stream(port, kit)
    child.send_signal(signal.SIGTERM)
    ready = b"GET /ready HTTP/1.1\r\nhost: localhost\r\n\r\n"
    while await status_of(port, ready) != 503:
        await asyncio.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    assert b'"shutdown"' in await asyncio.wait_for(reader.read(), 20)
    assert await asyncio.wait_for(child.wait(), 20) == 0
    writer.close()


async def test_a_drained_gateway_stays_until_it_is_told_to_end(start, kit):
    child, port = await start(drain_seconds=1)
    reader, writer = await begin_stream(port, kit)
    child.send_signal(signal.SIGUSR1)
    while await status_of(port, kit.request()) != 503:
        await asyncio.sleep(0.02)
    assert b'"shutdown"' in await asyncio.wait_for(reader.read(), 20)
    writer.close()
    with pytest.raises(OSError):
        while True:
            await status_of(port, kit.request())
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)
    assert child.returncode is None
    child.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(child.wait(), 20) == 0
