"""An installation under attack from its own machine: do the walls hold?

Starts `tollkeeper up`, sends a chat, then forges records over HTTP and gRPC, looks at every file's mode, revokes a
token that has made others, and wipes the end of the audit in several ways, also with a start in between.
"""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc

from backends.telemetry.otlp import CONTENT_TYPE
from bench.load.processes import free_ports
from bench.regressions.security.forged_records import batch_of_record
from bench.report import Report
from tollkeeper.ports import Ports

_PORTS: Final = 12
_FORGERIES: Final = 20
_CHILDREN: Final = 3
_START_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 40.0
_SETTLE_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1
_EXPORT: Final = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
_CUT: Final = (
    "DROP TRIGGER IF EXISTS audit_loses_none",
    "DELETE FROM audit WHERE id > (SELECT max(id) - 3 FROM audit)",
)


def measure(report: Report) -> None:
    """Attack one installation and count what got through."""
    with tempfile.TemporaryDirectory(prefix="tollkeeper-walls-") as home:
        data = Path(home) / "data"
        with _running(data) as installation:
            installation.chat()
            forged = installation.forge()
            alive, children = installation.revoke_parent()
            stored = installation.is_shipped()
            loose = _loose(data)
        wiped, ways = _wipe(data, Path(home))
    report.add("walls_own_records_waiting", 0 if stored else 1, "gateways", must=0, better="lower")
    for way, accepted in forged.items():
        report.add(f"walls_forged_{way}", accepted, "records", must=0, better="lower", n=_FORGERIES)
    report.add("walls_loose_files", loose["files"], "files", must=0, better="lower", n=loose["seen"])
    report.add("walls_loose_directories", loose["directories"], "directories", must=0, better="lower", n=loose["seen"])
    report.add("walls_child_tokens_alive", alive, "tokens", must=0, better="lower", n=children)
    report.add("walls_audit_wipes_passed", wiped, "wipes", must=0, better="lower", n=ways)


class _Installation:
    """A running installation, reached as everybody on its machine reaches it."""

    def __init__(self, data: Path, addresses: dict[str, str]) -> None:
        self._data = data
        self._addresses = addresses

    def chat(self) -> None:
        """Ask the demonstration's model for one answer."""
        key = (self._data / "secrets" / "demo_key").read_text().strip()
        body = {"model": "scripted-1", "messages": [{"role": "user", "content": "Hello"}]}
        status, _ = _call("POST", f"{self._addresses['gateway']}/v1/chat/completions", key, body)
        assert status == 200, status

    def is_shipped(self) -> bool:
        """Return whether the gateway's own records reach the collector."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < deadline:
            _, state = _call("GET", f"{self._addresses['gateway']}/ready")
            if state["recorded_requests"] and not state["journal_bytes"]:
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def forge(self) -> dict[str, int]:
        """Send records that no gateway made, and return how many were taken, by the way they came."""
        collector = self._addresses["collector"]
        found = {"http": 0, "grpc": 0}
        with grpc.insecure_channel(self._addresses["grpc"]) as channel:
            export: Callable[..., bytes] = channel.unary_unary(_EXPORT)
            for _ in range(_FORGERIES):
                headers = {"Content-Type": CONTENT_TYPE}
                request = urllib.request.Request(f"{collector}/v1/logs", batch_of_record(None), headers)
                with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=10) as answer:
                    found["http"] += answer.status == 200
                with contextlib.suppress(grpc.RpcError):
                    export(batch_of_record(None), timeout=10)
                    found["grpc"] += 1
        return found

    def revoke_parent(self) -> tuple[int, int]:
        """Let a token make others, revoke it, and return how many of those still work, and how many there were."""
        owner = (self._data / "secrets" / "admin_token").read_text().strip()
        tokens = f"{self._addresses['control']}/v1/tokens"
        _, parent = _call("POST", tokens, owner, {"name": "parent", "role": "admin"})
        maker, children = parent["secret"], []
        for number in range(_CHILDREN):  # each made with the one before
            _, child = _call("POST", tokens, maker, {"name": f"child {number}", "role": "admin"})
            maker = child["secret"]
            children.append(maker)
        _call("DELETE", f"{tokens}/{parent['id']}", owner)
        pools = f"{self._addresses['control']}/v1/pools"
        return sum(_call("GET", pools, child)[0] == 200 for child in children), len(children)


def _call(method: str, url: str, bearer: str = "", body: Any = None) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {bearer}"} if bearer else {})
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, None


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}


@contextmanager
def _running(data: Path) -> Iterator[_Installation]:
    base = free_ports(_PORTS)
    log = data.parent / "up.log"
    place = ["--data", str(data), "--port-base", str(base), "--no-dashboard", "--no-engine"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tollkeeper", "up", *place], env=_environment(), stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while "stops everything" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the installation is not ready: {log.read_text()[-2000:]}")
            time.sleep(_POLL_SECONDS)
        ports = Ports.from_base(base)
        reached = {name: f"http://127.0.0.1:{port}" for name, port in ports.by_name().items()}
        yield _Installation(data, reached | {"grpc": f"127.0.0.1:{ports.otlp_grpc}"})
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _loose(data: Path) -> dict[str, int]:
    """Count files more open than 0600 and directories more open than 0700, the data directory itself included."""
    found = {"files": 0, "directories": 0, "seen": 0}
    for path in (data, *data.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # the store merges and deletes meanwhile
            if path.is_symlink():
                continue
            found["seen"] += 1
            found["directories" if path.is_dir() else "files"] += bool(path.stat().st_mode & 0o077)
    return found


def _wipe(data: Path, home: Path) -> tuple[int, int]:
    """Cut the audit's end on copies of the data in several ways, and return how many of them verify, of how many."""
    passed = 0
    removals = ("", "audit/control", "audit")
    for number, removed in enumerate(removals):
        copy = home / f"copy-{number}"
        shutil.copytree(data, copy, ignore=shutil.ignore_patterns("store*", "run"))
        _cut(copy, removed)
        passed += _verifies(copy)
    _cut(data, "audit")
    with _running(data):
        pass  # the control plane begins another chain
    return passed + _verifies(data), len(removals) + 1


def _cut(data: Path, removed: str) -> None:
    with contextlib.closing(sqlite3.connect(data / "control.db")) as database, database:
        for statement in _CUT:
            database.execute(statement)
    if removed:
        shutil.rmtree(data / removed)


def _verifies(data: Path) -> bool:
    command = [sys.executable, "-m", "tollkeeper", "audit", "verify", "--data", str(data)]
    return subprocess.run(command, env=_environment(), capture_output=True, check=False).returncode == 0
