"""`python -m gateway` as a process: it starts from one file, drains at SIGTERM, and says in one line what is wrong."""

import asyncio
import os
import signal
import socket
import subprocess
import sys

import pytest
import yaml


@pytest.fixture
async def process(tmp_path, kit):
    """Start `python -m gateway` with variables; `None` removes one."""
    started = []
    config = kit.configuration(("scripted-1", [kit.scripted(tokens=30, gap_ms=10)]))
    (tmp_path / "gateway.yaml").write_text(yaml.safe_dump(config))

    async def start(**variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
        environment |= {
            "TOLLKEEPER_DATA": str(tmp_path / "data"),
            "TOLLKEEPER_GATEWAY_CONFIG": str(tmp_path / "gateway.yaml"),
            "TOLLKEEPER_GATEWAY_PORT": "0",
            **{f"TOLLKEEPER_{name.upper()}": str(value) for name, value in variables.items()},
        }
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", env=environment, stderr=asyncio.subprocess.PIPE, cwd=tmp_path
        )
        started.append(child)
        return child

    yield start
    for child in started:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def failure(child: asyncio.subprocess.Process) -> str:
    """Return the one line with which a process refuses to start."""
    _, errors = await asyncio.wait_for(child.communicate(), 20)
    assert child.returncode == 2, errors
    lines = [line for line in errors.decode().splitlines() if line]
    assert len(lines) == 1, errors.decode()
    assert lines[0].startswith("gateway: ")
    return lines[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_the_answer_under_way_finish(process, kit, free_ports, number):
    [port] = free_ports(1)
    child = await process(gateway_port=port, drain_notice_seconds=0)
    line = b""
    while b"gateway ready" not in line:
        line = await asyncio.wait_for(child.stderr.readline(), 20)
    assert f"port={port}".encode() in line
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(kit.request(stream=True))
    await reader.readuntil(b"\r\n\r\n")
    child.send_signal(number)
    body = await asyncio.wait_for(reader.read(), 10)
    assert b"[DONE]" in body and body.endswith(b"0\r\n\r\n")
    assert await asyncio.wait_for(child.wait(), 10) == 0
    writer.close()


async def test_a_port_in_use_is_one_line_that_says_what_to_do(process):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        line = await failure(await process(gateway_port=port))
    assert str(port) in line and "in use" in line and "TOLLKEEPER_GATEWAY_PORT" in line


async def test_a_data_directory_that_cannot_be_written_is_one_line(process, tmp_path):
    (tmp_path / "taken").write_text("a file, not a directory")
    line = await failure(await process(data=tmp_path / "taken"))
    assert str(tmp_path / "taken") in line and "TOLLKEEPER_DATA" in line


@pytest.mark.parametrize(
    ("name", "value"),
    [("gateway_port", "http"), ("gateway_port", "65536"), ("journal_when_full", "panic"), ("max_concurrent", "0")],
)
async def test_a_bad_variable_is_one_line_with_its_name_and_value(process, name, value):
    line = await failure(await process(**{name: value}))
    assert f"TOLLKEEPER_{name.upper()}" in line and value in line


async def test_a_bad_configuration_file_is_one_line(process, tmp_path):
    (tmp_path / "bad.yaml").write_text("keys:\n  - key: 5\n")
    line = await failure(await process(gateway_config=tmp_path / "bad.yaml"))
    assert "bad.yaml, line 2" in line


async def test_an_address_that_is_not_of_this_machine_is_one_line(process):
    line = await failure(await process(host="192.0.2.1"))
    assert "192.0.2.1" in line and "TOLLKEEPER_HOST" in line


async def test_a_second_gateway_on_the_same_data_is_one_line(process, tmp_path, start_gateway, kit):
    await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])), data=tmp_path / "data")
    line = await failure(await process())
    assert "in use by another process" in line


def test_two_workers_without_shared_counters_do_not_start_and_no_secret_is_shown(tmp_path):
    environment = {"TOLLKEEPER_DATA": str(tmp_path), "TOLLKEEPER_WORKERS": "2", "TOLLKEEPER_DATABASE_URL": "x:s3cret@"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gateway"], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("gateway: 2 workers would each allow the whole of every limit and budget")
    assert "TOLLKEEPER_REDIS_URL" in done.stderr and "s3cret" not in done.stderr
