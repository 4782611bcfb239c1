"""The supervisor over small real processes: order, restarts, a clean end, and nothing left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from backends.processes import process_watch
from contracts.errors import ConfigurationError
from tests.ports import find_free_port
from tollkeeper import children
from tollkeeper.children import Backoff, Child, ChildSpec
from tollkeeper.supervisor import ProcessTimeouts, Stage, Supervisor

QUICK = Backoff(first_seconds=0.05, longest_seconds=0.4, healthy_seconds=30)
PATIENCE = ProcessTimeouts(ready_seconds=10, grace_seconds=5, backoff=QUICK)


class Output:
    """What the processes said, in order."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, name: str, line: str) -> None:
        self.lines.append((name, line))

    def of(self, name: str) -> list[str]:
        return [line for process, line in self.lines if process == name]


def script(text: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", textwrap.dedent(text), *arguments)


def spec(name: str, text: str, *arguments: str, ready_url: str = "") -> ChildSpec:
    return ChildSpec(name, script(text, *arguments), dict(os.environ), ready_url)


STAYS = "print('here', flush=True)\nimport signal; signal.pause()"
STUBBORN = """
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print('deaf', flush=True)
    while True: time.sleep(60)
"""

ANSWERS = """
    import http.server, signal, sys

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_): pass

    def leave(*_):
        print('bye', flush=True)
        sys.exit(0)

    server = http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler)
    signal.signal(signal.SIGTERM, leave)
    print('hello', flush=True)
    server.serve_forever()
"""


# It sleeps: what a busy machine lets wait for a processor counts as hung only after half a minute.
HANGS = ANSWERS.replace("import http.server, signal, sys", "import http.server, signal, sys, time").replace(
    "signal.signal(signal.SIGTERM, leave)",
    "signal.signal(signal.SIGTERM, leave)\n    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(600))",
)
SLOW_START = ANSWERS.replace("server.serve_forever()", "import time; time.sleep(1.5); server.serve_forever()")


async def until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pids_of(supervisor: Supervisor) -> dict[str, int | None]:
    return {child.spec.name: child.pid for child in supervisor.children}


@pytest.mark.alone
async def test_a_killed_process_runs_again_within_a_second(tmp_path: Path) -> None:
    output = Output()
    supervisor = Supervisor([Stage((spec("store", STAYS),))], tmp_path, output, ProcessTimeouts())
    await supervisor.start()
    first = pids_of(supervisor)["store"]
    assert first is not None
    try:
        os.kill(first, signal.SIGKILL)
        await until(lambda: pids_of(supervisor)["store"] not in (None, first), "a second run", seconds=1)
        assert any("SIGKILL" in line for line in output.of("store"))
    finally:
        await supervisor.stop()


@pytest.mark.parametrize(
    ("previous", "uptime", "expected"),
    [
        (0, 0.1, 0.2),  # the first end
        (0.2, 0.1, 0.4),
        (5.0, 0.1, 10.0),
        (6.0, 0.1, 10.0),  # never beyond the longest
        (10.0, 29.9, 10.0),  # just below healthy
        (10.0, 30.0, 0.2),  # at healthy
        (10.0, 30.1, 0.2),
    ],
)
def test_the_wait_doubles_and_starts_over_after_a_healthy_stretch(
    previous: float, uptime: float, expected: float
) -> None:
    assert Backoff().after(previous, uptime) == expected


async def test_a_process_that_keeps_ending_is_waited_for_longer_each_time(tmp_path: Path) -> None:
    output = Output()
    supervisor = Supervisor([Stage((spec("flaky", "raise SystemExit(1)"),))], tmp_path, output, PATIENCE)
    await supervisor.start()
    try:
        await until(lambda: len(output.of("flaky")) >= 4, "four ends")
    finally:
        await supervisor.stop()
    waits = [float(line.split("again in ")[1].removesuffix(" s")) for line in output.of("flaky")[:4]]
    assert waits == [0.05, 0.1, 0.2, 0.4]


async def test_stages_start_in_order_and_end_in_reverse(tmp_path: Path) -> None:
    ports = {name: find_free_port() for name in ("one", "two")}
    stages = [
        Stage((spec(name, ANSWERS, str(port), ready_url=f"http://127.0.0.1:{port}/"),)) for name, port in ports.items()
    ]
    output = Output()
    supervisor = Supervisor(stages, tmp_path, output, PATIENCE)
    await supervisor.start()
    await until(lambda: ("two", "hello") in output.lines, "the second")
    await supervisor.stop()
    words = [(name, line) for name, line in output.lines if line in ("hello", "bye")]
    assert words == [("one", "hello"), ("two", "hello"), ("two", "bye"), ("one", "bye")]
    assert not list(tmp_path.glob("*.pid"))


DRAINS = """
import signal, socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
def drain(*_):
    print("draining", flush=True)
    time.sleep(0.3)
    server.close()
    print("closed", flush=True)
def bye(*_):
    print("bye", flush=True)
    raise SystemExit
signal.signal(signal.SIGUSR1, drain)
signal.signal(signal.SIGTERM, bye)
print("hello", flush=True)
while True:
    try:
        accepted, _ = server.accept()
    except OSError:
        time.sleep(0.02)
        continue
    accepted.recv(1000)
    accepted.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: 0\\r\\n\\r\\n")
    accepted.close()
"""


SAYS_BYE = """
import signal
def bye(*_):
    print("bye", flush=True)
    raise SystemExit
signal.signal(signal.SIGTERM, bye)
print("hello", flush=True)
while True:
    signal.pause()
"""


async def test_a_stop_drains_gateways_then_ends_engine_hosts_then_the_gateways(tmp_path: Path) -> None:
    port = find_free_port()
    gateway = replace(spec("gateway", DRAINS, str(port), ready_url=f"http://127.0.0.1:{port}/"), drains=True)
    engine = replace(spec("engine", SAYS_BYE), ends_first=True)
    output = Output()
    supervisor = Supervisor(
        [Stage((spec("collector", SAYS_BYE), engine)), Stage((gateway,))], tmp_path, output, PATIENCE
    )
    await supervisor.start()
    await until(lambda: ("engine", "hello") in output.lines and ("collector", "hello") in output.lines, "all")
    await supervisor.drain()
    await supervisor.stop()
    assert [one for one in output.lines if one[1] not in ("hello", "draining")] == [
        ("gateway", "closed"),
        ("engine", "bye"),
        ("gateway", "bye"),
        ("collector", "bye"),
    ]


async def test_the_next_stage_waits_for_the_one_shot_to_succeed(tmp_path: Path) -> None:
    marker = tmp_path / "migrated"
    migrate = spec("migrations", "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('x')", str(marker))
    needy = spec(
        "gateway", "import sys, pathlib; print(pathlib.Path(sys.argv[1]).exists(), flush=True)\n" + STAYS, str(marker)
    )
    output = Output()
    supervisor = Supervisor([Stage((migrate,), runs_once=True), Stage((needy,))], tmp_path, output, PATIENCE)
    await supervisor.start()
    try:
        await until(lambda: bool(output.of("gateway")), "the gateway's first line")
        assert output.of("gateway")[0] == "True"
    finally:
        await supervisor.stop()


async def test_a_failed_one_shot_stops_the_start_with_its_own_words(tmp_path: Path) -> None:
    failing = spec("migrations", "print('the database is newer; upgrade'); raise SystemExit(2)")
    supervisor = Supervisor([Stage((failing,), runs_once=True)], tmp_path, Output(), PATIENCE)
    with pytest.raises(ConfigurationError, match="the database is newer; upgrade"):
        await supervisor.start()
    await supervisor.stop()


async def test_a_process_that_says_it_cannot_run_is_not_tried_again(tmp_path: Path) -> None:
    unusable = spec("store", "print('port 1 is in use'); raise SystemExit(2)", ready_url="http://127.0.0.1:9/")
    supervisor = Supervisor([Stage((unusable,))], tmp_path, Output(), PATIENCE)
    with pytest.raises(ConfigurationError, match="port 1 is in use"):
        await supervisor.start()
    assert [child.restarts for child in supervisor.children] == [0]
    await supervisor.stop()


async def test_a_process_that_never_answers_is_named_with_its_last_words(tmp_path: Path) -> None:
    silent = spec("store", STAYS, ready_url=f"http://127.0.0.1:{find_free_port()}/")
    supervisor = Supervisor([Stage((silent,))], tmp_path, Output(), ProcessTimeouts(ready_seconds=1, backoff=QUICK))
    with pytest.raises(ConfigurationError, match="store is not ready after 1 s; it last said: here"):
        await supervisor.start()
    await supervisor.stop()


async def test_a_process_deaf_to_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    output = Output()
    patience = ProcessTimeouts(grace_seconds=0.3, backoff=QUICK)
    supervisor = Supervisor([Stage((spec("deaf", STUBBORN),))], tmp_path, output, patience)
    await supervisor.start()
    await until(lambda: "deaf" in output.of("deaf"), "its first line")
    pid = pids_of(supervisor)["deaf"]
    assert pid is not None
    started = asyncio.get_running_loop().time()
    await supervisor.stop()
    assert asyncio.get_running_loop().time() - started < 3
    assert not is_running(pid)


async def test_what_a_killed_process_left_in_its_session_is_ended_before_the_restart(tmp_path: Path) -> None:
    parent = """
        import subprocess, sys, signal
        grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
        print(grandchild.pid, flush=True)
        signal.pause()
    """
    output = Output()
    supervisor = Supervisor([Stage((spec("dashboard", parent),))], tmp_path, output, PATIENCE)
    await supervisor.start()
    try:
        await until(lambda: bool(output.of("dashboard")), "the grandchild")
        grandchild = int(output.of("dashboard")[0])
        first = pids_of(supervisor)["dashboard"]
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: not is_running(grandchild), "the grandchild's end")
        await until(lambda: pids_of(supervisor)["dashboard"] not in (None, first), "the restart")
    finally:
        await supervisor.stop()


async def test_a_line_without_end_is_cut_and_not_gathered(tmp_path: Path) -> None:
    output = Output()
    child = Child(spec("loud", "print('x' * 1_000_000, end='')"), tmp_path, output, QUICK)
    assert await child.run_once() == 0
    assert sum(len(line) for line in output.of("loud")) == 1_000_000
    assert max(len(line) for line in output.of("loud")) <= 3 * 65_536


async def test_a_command_that_does_not_exist_says_so(tmp_path: Path) -> None:
    output = Output()
    child = Child(ChildSpec("ghost", ("/no/such/command",), dict(os.environ)), tmp_path, output, QUICK)
    assert await child.run_once() == 127
    assert output.of("ghost") == ["/no/such/command: No such file or directory"]


SUPERVISE = """
import asyncio, os, sys
from pathlib import Path
from tollkeeper.children import ChildSpec
from tollkeeper.supervisor import Stage, Supervisor

async def main():
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('deaf', flush=True); time.sleep(600)"
    )
    children = tuple(ChildSpec(name, (sys.executable, "-c", deaf), dict(os.environ)) for name in ("a", "b"))
    supervisor = Supervisor([Stage(children)], Path(sys.argv[1]), lambda name, line: print(name, line, flush=True))
    await supervisor.start()
    await supervisor.wait_for_failure()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends the children of a killed parent")
async def test_no_process_outlives_a_supervisor_killed_with_sigkill(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        assert {supervisor.stdout.readline().strip() for _ in range(2)} == {"a deaf", "b deaf"}
        pids = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
        assert len(pids) == 2 and all(is_running(pid) for pid in pids)
        supervisor.kill()
        await until(lambda: not any(is_running(pid) for pid in pids), "the children's end", seconds=5)


@pytest.fixture
def quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notice a hung process in a tenth of a second."""
    monkeypatch.setattr(children, "_WATCH_SECONDS", 0.02)
    monkeypatch.setattr(children, "_WATCH_UP_SECONDS", 0.02)
    monkeypatch.setattr(process_watch, "_TICK_SECONDS", 0.05)


@pytest.mark.usefixtures("quick_watch")
@pytest.mark.parametrize("by_signal", [True, False])
async def test_a_hung_process_is_killed_and_runs_again(tmp_path: Path, by_signal: bool) -> None:
    port = find_free_port()
    url, output = f"http://127.0.0.1:{port}/", Output()
    hangs = replace(
        spec("web", HANGS if not by_signal else ANSWERS, str(port), ready_url=url),
        alive_url=url,
        hung_restart_seconds=0.5,
    )
    supervisor = Supervisor([Stage((hangs,))], tmp_path, output, PATIENCE)
    await supervisor.start()
    try:
        first = pids_of(supervisor)["web"]
        assert first is not None
        await asyncio.sleep(0.2)  # it has been seen to answer
        os.kill(first, signal.SIGSTOP if by_signal else signal.SIGUSR1)
        await until(lambda: pids_of(supervisor)["web"] not in (None, first), "a second run")
        told = output.of("web")
        assert sum("hung: " in line for line in told) == 1
        assert any(line == "has been hung for 0.5 s; killed" for line in told)
        assert any("SIGKILL" in line for line in told)
        await until(lambda: output.of("web").count("hello") == 2, "its first words again")
    finally:
        await supervisor.stop()


@pytest.mark.usefixtures("quick_watch")
async def test_a_hung_process_that_must_not_be_restarted_is_told_of_and_left(tmp_path: Path) -> None:
    port = find_free_port()
    url, output = f"http://127.0.0.1:{port}/", Output()
    store = replace(spec("store", ANSWERS, str(port), ready_url=url), alive_url=url)
    supervisor = Supervisor([Stage((store,))], tmp_path, output, PATIENCE)
    await supervisor.start()
    try:
        first = pids_of(supervisor)["store"]
        assert first is not None
        await asyncio.sleep(0.2)
        os.kill(first, signal.SIGSTOP)
        await until(lambda: any("hung: " in line for line in output.of("store")), "a line about it")
        await asyncio.sleep(1.0)
        assert pids_of(supervisor)["store"] == first
        os.kill(first, signal.SIGCONT)
        await until(lambda: "answers again" in output.of("store"), "a line that it is back")
        assert sum("hung: " in line for line in output.of("store")) == 1
    finally:
        await supervisor.stop()


@pytest.mark.usefixtures("quick_watch")
async def test_a_process_that_starts_slowly_is_not_hung(tmp_path: Path) -> None:
    port = find_free_port()
    url, output = f"http://127.0.0.1:{port}/", Output()
    slow = replace(spec("web", SLOW_START, str(port), ready_url=url), alive_url=url, hung_restart_seconds=0.3)
    supervisor = Supervisor([Stage((slow,))], tmp_path, output, PATIENCE)
    await supervisor.start()
    await supervisor.stop()
    assert output.of("web")[:1] == ["hello"]
