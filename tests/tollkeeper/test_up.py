"""`tollkeeper up` with the real processes: ready, refused twice, restarted, ended, and gone when killed."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.ports import find_free_ports
from tests.steady_time import poll_within

PATIENCE_SECONDS = 90.0
PORTS = 9


class Up:
    """One `tollkeeper up` on a directory and ports of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.base = find_free_ports(PORTS)[0]
        self.log = data.parent / "up.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}

    @property
    def command(self) -> list[str]:
        place = ["--data", str(self.data), "--port-base", str(self.base), "--no-dashboard"]
        return [sys.executable, "-m", "tollkeeper", "up", *place]

    def start(self, within_seconds: float = PATIENCE_SECONDS, **settings: str) -> None:
        """Start, and wait until it says that it is ready."""
        self.log.write_bytes(b"")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
        environment |= {**self.environment, **settings}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, env=environment, stdout=log, stderr=log)
        self.until(lambda: "Tollkeeper is ready" in self.log.read_text(), within_seconds)
        self.until(lambda: "stops everything" in self.log.read_text(), within_seconds)

    def until(self, condition: Callable[[], bool], seconds: float) -> None:
        def is_so() -> bool:
            assert self.process is not None and self.process.poll() is None, self.log.read_text()
            return condition()

        assert poll_within(is_so, seconds), f"not within {seconds:g} s\n{self.log.read_text()}"

    def pid(self, name: str) -> int | None:
        try:
            return int((self.data / "run" / f"{name}.pid").read_text())
        except (OSError, ValueError):
            return None

    def pids(self) -> list[int]:
        return [int(path.read_text()) for path in (self.data / "run").glob("*.pid")]

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path / "data")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=1).status_code == 200
    except httpx.HTTPError:
        return False


def assert_revocable(up: Up) -> None:
    token = (up.data / "secrets" / "admin_token").read_text().strip()
    with httpx.Client(trust_env=False) as client:
        admin = {"Authorization": f"Bearer {token}"}
        keys = f"http://127.0.0.1:{up.base + 1}/v1/tenants/demo/keys"
        made = client.post(keys, json={"name": "short-lived"}, headers=admin).json()

        def status() -> int:
            bearer = {"Authorization": f"Bearer {made['secret']}"}
            return client.get(f"http://127.0.0.1:{up.base}/v1/models", headers=bearer).status_code

        up.until(lambda: status() == 200, PATIENCE_SECONDS)
        assert client.delete(f"{keys}/{made['id']}", headers=admin).status_code == 200
        up.until(lambda: status() == 401, PATIENCE_SECONDS)


def too_open(data: Path) -> list[str]:
    """Return what below a data directory, itself included, others than its owner may use."""
    found = []
    for path in (data, *data.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # the store merges and deletes meanwhile
            mode = path.lstat().st_mode
            if not path.is_symlink() and mode & 0o077:
                found.append(f"{oct(mode & 0o777)} {path.relative_to(data)}")
    return found


def ask(up: Up) -> None:
    key = (up.data / "secrets" / "demo_key").read_text().strip()
    body = {"model": "scripted-1", "messages": [{"role": "user", "content": "Hello"}]}
    url, bearer = f"http://127.0.0.1:{up.base}/v1/chat/completions", {"Authorization": f"Bearer {key}"}
    assert httpx.post(url, json=body, headers=bearer, trust_env=False, timeout=30).status_code == 200


def loosen(data: Path) -> None:
    """Let others than its owner use all of a data directory, and put a file of somebody's own there."""
    for path in (data, *data.rglob("*")):
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
    mine = data / "notes.txt"
    mine.touch(mode=0o644)
    mine.chmod(0o644)


@pytest.mark.alone
@pytest.mark.e2e
@pytest.mark.drill
def test_one_command_serves_a_chat_revokes_a_key_survives_kills_and_leaves_nothing(up: Up) -> None:
    up.start()
    said = up.log.read_text()
    gateway = f"http://127.0.0.1:{up.base}/v1"
    assert f"export OPENAI_BASE_URL={gateway}" in said
    key = (up.data / "secrets" / "demo_key").read_text().strip()
    assert f"export OPENAI_API_KEY={key}" in said

    # The printed example, as an SDK would send it.
    chat = {"model": "tollkeeper-5m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hello"}]}
    reply = httpx.post(
        f"{gateway}/chat/completions", json=chat, headers={"Authorization": f"Bearer {key}"}, trust_env=False
    )
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["message"]["content"]

    second = subprocess.run(up.command, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 2
    assert "runs already on" in second.stderr and second.stderr.count("\n") == 1

    assert_revocable(up)

    health = {"store": f"http://127.0.0.1:{up.base + 7}/ping", "collector": f"http://127.0.0.1:{up.base + 6}/ready"}
    for name, url in health.items():
        before = up.pid(name)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        up.until(lambda name=name, before=before: up.pid(name) not in (None, before), 1)  # type: ignore[misc]  # defaults bind the loop's values
        up.until(lambda url=url: answers(url), 10)  # type: ignore[misc]  # as above

    up.until(lambda: "step records go to gateway" in up.log.read_text(), PATIENCE_SECONDS)
    assert too_open(up.data) == []
    pids = up.pids()
    assert len(pids) == 6  # store, collector, control plane, analytics, gateway, engine host
    assert up.stop() == 0
    assert not any(is_running(pid) for pid in pids)
    assert "step records left behind" not in up.log.read_text()
    assert "journal not empty at stop" not in up.log.read_text()
    assert {path.name for path in (up.data / "run").iterdir() if path.is_file()} == {
        "up.lock",
        "engine-default.sock.lock",
    }

    # The same key opens the door after a restart, which closes what others were let into, and starts the embedded
    # store if the store's URL names it.
    loosen(up.data)
    up.start(TOLLKEEPER_STORE_URL=f"http://127.0.0.1:{up.base + 7}/")
    assert f"export OPENAI_API_KEY={key}" in up.log.read_text()
    ask(up)
    assert up.pid("store") is not None
    assert too_open(up.data) == ["0o644 notes.txt"], "what is not ours stays as it is"

    # A supervisor killed with SIGKILL takes its children with it, and the next start finds nothing in the way.
    pids = up.pids()
    up.stop(signal.SIGKILL)
    assert poll_within(lambda: not any(map(is_running, pids)), 5), "children outlived their supervisor"
    up.start()
    assert up.stop(signal.SIGTERM) == 0


@pytest.mark.alone
@pytest.mark.e2e
@pytest.mark.drill
def test_hung_processes_are_noticed_and_restarted(up: Up) -> None:
    up.environment = {"TOLLKEEPER_ENGINE_HUNG_RESTART_SECONDS": "6", "TOLLKEEPER_HUNG_RESTART_SECONDS": "6"}
    up.start()
    ready = f"http://127.0.0.1:{up.base}/ready"

    def page() -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(ready, trust_env=False, timeout=5).json()
        return found

    up.until(lambda: page()["engines"]["default"]["state"] == "ready" and not page()["degraded"], PATIENCE_SECONDS)
    up.until(lambda: {one["state"] for one in page()["processes"].values()} == {"up"}, PATIENCE_SECONDS)
    before = {name: up.pid(name) for name in ("engine", "control", "collector")}
    for pid in before.values():
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
    up.until(lambda: page()["engines"]["default"]["state"] == "hung", PATIENCE_SECONDS)
    up.until(lambda: {"engines_away", "processes_away"} <= set(page()["degraded"]), PATIENCE_SECONDS)
    for name, pid in before.items():
        up.until(lambda name=name, pid=pid: up.pid(name) not in (None, pid), PATIENCE_SECONDS)  # type: ignore[misc]  # defaults bind the loop's values
    up.until(lambda: not page()["degraded"], PATIENCE_SECONDS)
    lines = up.log.read_text().splitlines()
    for name in before:
        mine = [line.partition("| ")[2] for line in lines if line.startswith(name)]
        assert sum(line.startswith("hung: ") for line in mine) == 1
        assert "has been hung for 6 s; killed" in mine
    assert up.stop() == 0
