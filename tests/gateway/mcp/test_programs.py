"""MCP servers that are programs: started by a real tool host, offered at /mcp, bounded, and kept apart by caller."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.conftest import KEY
from tests.gateway.mcp.conftest import call, post, sdk_client, tool_calls, with_servers
from tests.steady_time import poll_within

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
RAW = [sys.executable, str(HERE / "stdio_program.py")]
PROGRAMS: dict[str, Any] = {
    "raw": {
        "command": RAW,
        "environment": {"PLAIN": "word", "TAKEN": "env:A_SECRET"},
        "key_variable": "TOKEN",
        "max_processes": 4,
    },
    "sdk": {"command": [sys.executable, str(HERE / "sdk_program.py")]},
    "absent": {"command": ["/no/such/program"]},
    "one": {"command": RAW, "max_processes": 1},
}
PRICE = 1_000_000_000  # pico-USD
OTHER = "tk-" + "B" * 43


class HostProcess:
    """`python -m backends.tool_host` in a process of its own."""

    def __init__(self, home: Path) -> None:
        self.socket, self.log = home / "tools.sock", home / "log"
        (home / "tools.yaml").write_text(yaml.safe_dump({"servers": PROGRAMS}))
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "backends.tool_host"],
                env={
                    **{name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")},
                    "PYTHONPATH": str(ROOT),
                    "TOLLKEEPER_DATA": str(home),
                    "TOLLKEEPER_TOOLS_FILE": str(home / "tools.yaml"),
                    "TOLLKEEPER_TOOLS_SOCKET": str(self.socket),
                    "A_SECRET": "secret-of-the-host-123",
                    "OF_THE_HOST_ALONE": "hidden",
                },
                stderr=log,
            )
        assert poll_within(lambda: self.socket.exists() or self.process.poll() is not None, 60)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()


@pytest.fixture(scope="module")
def tool_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    running = HostProcess(tmp_path_factory.mktemp("tools"))
    yield running
    running.stop()


@pytest.fixture
def start(start_gateway, tool_host, monkeypatch):
    """Start a gateway with programs of the tool host as MCP servers."""

    async def start(*names: str, more: Any = None, **fields: Any) -> Any:
        servers = [{"name": name, "url": f"stdio:{name}", "price_usd": "0.001", **(more or {})} for name in names]
        return await start_gateway(with_servers(*servers, **fields), tools_socket=tool_host.socket)

    return start


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def failure_of(result: dict[str, Any]) -> str:
    assert result["isError"] is True
    return str(result["_meta"]["dev.tollkeeper/error"]["code"])


async def test_tools_of_programs_are_listed_called_and_recorded(start):
    gateway = await start("raw", "sdk")
    async with sdk_client(gateway) as client:
        names: set[str] = set()
        for _ in range(20):  # the SDK takes seconds to import
            names = {tool.name for tool in (await client.list_tools()).tools}
            if "sdk__get_weather" in names:
                break
            await asyncio.sleep(1)
        assert {"raw__count", "sdk__get_weather"} <= names
        answer = await client.call_tool("sdk__get_weather", {"city": "Oslo"})
    assert text_of(answer.model_dump()) == "sunny in Oslo"
    [record] = tool_calls(gateway)
    assert (record.model, record.provider, record.outcome) == ("sdk__get_weather", "sdk", "ok")
    assert record.cost_pico_usd == PRICE


async def test_each_key_has_a_process_of_its_own(start, kit):
    keys = [{"key": key, "tenant": "acme", "id": id} for key, id in ((KEY, "key_1"), (OTHER, "key_2"))]
    gateway = await start("raw", keys=keys)
    assert [text_of(await call(gateway, "raw__count")) for _ in range(3)] == ["1", "2", "3"]
    assert text_of(await call(gateway, "raw__count", key=OTHER)) == "1"


async def test_a_program_has_its_variables_its_key_and_none_of_the_hosts(start, monkeypatch):
    monkeypatch.setenv("TOOLS_API_KEY", "key-of-the-gateway-456")
    gateway = await start("raw", more={"key": "env:TOOLS_API_KEY"})
    found = {
        name: text_of(await call(gateway, "raw__variable", {"name": name}))
        for name in ("PLAIN", "TAKEN", "TOKEN", "OF_THE_HOST_ALONE", "A_SECRET", "TOLLKEEPER_DATA")
    }
    absent = dict.fromkeys(("OF_THE_HOST_ALONE", "A_SECRET", "TOLLKEEPER_DATA"), "not set")
    # The program has the key: what it repeats of it is replaced on its way to the caller.
    assert found == {"PLAIN": "word", "TAKEN": "secret-of-the-host-123", "TOKEN": "[secret]", **absent}


async def test_what_a_program_prints_is_no_answer_and_its_secrets_are_not_logged(start, tool_host, monkeypatch):
    monkeypatch.setenv("TOOLS_API_KEY", "key-of-the-gateway-789")
    gateway = await start("raw", more={"key": "env:TOOLS_API_KEY"})
    assert text_of(await call(gateway, "raw__noise")) == "1"
    assert poll_within(lambda: "the token is" in tool_host.log.read_text(), 20)
    assert "key-of-the-gateway-789" not in tool_host.log.read_text()


async def test_a_key_for_a_program_that_takes_none_is_refused(start, monkeypatch):
    monkeypatch.setenv("TOOLS_API_KEY", "key-of-the-gateway-456")
    gateway = await start("one", more={"key": "env:TOOLS_API_KEY"})
    assert "refuses the gateway's credentials" in str(await listed_fault(gateway, "one"))


async def listed_fault(gateway: Any, server: str) -> object:
    """Return why a server's tools could not be listed."""
    await post(gateway, "tools/list")
    return next(one["fault"] for one in gateway.gateway.mcp.states() if one["server"] == server)


@pytest.mark.parametrize("name", ["absent", "unnamed"])
async def test_a_program_that_cannot_be_started_disturbs_no_other(start, name):
    gateway = await start(name, "raw")
    _, _, answer = await post(gateway, "tools/list")
    names = [tool["name"] for tool in answer["result"]["tools"]]
    assert "raw__count" in names and not any(one.startswith(name) for one in names)
    assert text_of(await call(gateway, "raw__count")) == "1"


@pytest.mark.parametrize("tool", ["crash", "flood", "overlong"])
async def test_a_program_that_ends_floods_or_sends_too_much_fails_its_call_and_is_started_again(start, tool):
    gateway = await start("raw")
    assert text_of(await call(gateway, "raw__count")) == "1"
    assert failure_of(await call(gateway, f"raw__{tool}")) in ("upstream_broken", "tool_result_too_large")
    assert text_of(await call(gateway, "raw__count")) == "1", "a new process"
    assert [record.cost_pico_usd for record in tool_calls(gateway)] == [PRICE] * 3, "the tool may have run"
    assert [record.outcome for record in tool_calls(gateway)] == ["ok", "error", "ok"]


async def test_a_call_that_takes_too_long_is_cancelled_at_the_program(start):
    gateway = await start("raw", more={"tools": [{"match": "hang", "timeout_seconds": 0.5}]})
    await call(gateway, "raw__count")  # which starts it
    assert failure_of(await call(gateway, "raw__hang")) == "upstream_timeout"
    seen = [text_of(await call(gateway, "raw__cancelled"))]
    while seen[-1] != "1" and len(seen) < 100:
        await asyncio.sleep(0.05)
        seen.append(text_of(await call(gateway, "raw__cancelled")))
    assert seen[-1] == "1"


async def test_progress_comes_during_the_call_by_the_callers_token(start):
    gateway = await start("raw")
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with sdk_client(gateway) as client:
        answers = await asyncio.gather(
            *(client.call_tool("raw__progress", {}, progress_callback=note) for _ in range(2))
        )
    assert [text_of(answer.model_dump()) for answer in answers] == ["done"] * 2 and seen == [1, 1]


async def test_a_program_that_reports_more_progress_than_a_gateway_takes_answers_all_the_same(start):
    gateway = await start("raw")
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with sdk_client(gateway) as client:
        answer = await client.call_tool("raw__reports", {}, progress_callback=note)
    assert text_of(answer.model_dump()) == "done"
    assert 0 < len(seen) <= 1000 and seen == sorted(seen)


async def test_what_a_program_asks_of_its_client_is_refused(start):
    gateway = await start("raw")
    assert "no user and no model" in text_of(await call(gateway, "raw__asks"))


async def test_the_process_unused_for_longest_makes_room(start):
    keys = [{"key": key, "tenant": "acme", "id": id} for key, id in ((KEY, "key_1"), (OTHER, "key_2"))]
    gateway = await start("one", keys=keys)
    counts = [text_of(await call(gateway, "one__count", key=key)) for key in (KEY, KEY, OTHER, KEY)]
    assert counts == ["1", "2", "1", "1"]


async def test_the_end_of_the_host_ends_programs_and_their_children(start_gateway, tmp_path):
    host = HostProcess(tmp_path)
    try:
        servers = [{"name": "raw", "url": "stdio:raw"}]
        gateway = await start_gateway(with_servers(*servers), tools_socket=host.socket)
        child = int(text_of(await call(gateway, "raw__child")))
        os.kill(child, 0)
    finally:
        await asyncio.to_thread(host.stop)
    assert poll_within(lambda: not _is_alive(child), 20)
    assert failure_of(await call(gateway, "raw__count")) == "upstream_unreachable"


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
