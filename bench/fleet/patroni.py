"""PostgreSQL under Patroni with etcd, on loopback: two servers, of which Patroni promotes one if the other is lost."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
import yaml

from tests.conftest import poll
from tests.ports import find_free_ports

_TTL_SECONDS: Final = 20  # Patroni takes no less
_PATIENCE_SECONDS: Final = 120.0
_USER: Final = "tollkeeper"
_SHOWN_LINES: Final = 25


def is_installed() -> bool:
    """Return whether Patroni and etcd are."""
    return shutil.which("patroni") is not None and shutil.which("etcd") is not None


class PatroniNode:
    """A PostgreSQL server and the Patroni that looks after it; killed and frozen together, as a machine is."""

    def __init__(self, folder: Path, name: str, binaries: Path, etcd: str, as_user: list[str]) -> None:
        self.name = name
        self.port, self._rest = find_free_ports(2)
        self._folder = folder / name
        self._folder.mkdir()
        self._as_user = as_user
        self._process: subprocess.Popen[bytes] | None = None
        self._config = self._folder / "patroni.yml"
        self._config.write_text(yaml.safe_dump(self._settings(binaries, etcd)))

    def start(self) -> None:
        """Start Patroni, which starts the server, or makes it of the leader's."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "LANG": "C.UTF-8"}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._as_user, "/usr/bin/patroni", str(self._config)],
                cwd=self._folder, env=environment, stdout=log, stderr=log,
            )  # fmt: skip

    def kill(self) -> None:
        """Kill everything of this node."""
        self._each(psutil.Process.kill)
        if self._process is not None:
            self._process.wait()

    def freeze(self) -> None:
        """Stop everything of this node where it is."""
        self._each(psutil.Process.suspend)

    def go_on(self) -> None:
        """Let everything of this node go on."""
        self._each(psutil.Process.resume)

    def stop(self) -> None:
        """End it, whatever state it is in."""
        self.go_on()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self.kill()

    def is_leader(self) -> bool:
        """Return whether its Patroni says that it takes writes."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._rest}/primary", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def members(self) -> list[dict[str, Any]]:
        """Return what its Patroni knows of all; nothing if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._rest}/cluster", timeout=2) as answer:
                found: list[dict[str, Any]] = json.load(answer)["members"]
                return found
        except (OSError, urllib.error.URLError, ValueError):
            return []

    def last_lines(self) -> list[str]:
        """Return what its Patroni, and the server through it, logged last."""
        return (self._folder / "log").read_text(errors="replace").splitlines()[-_SHOWN_LINES:]

    def url(self, database: str) -> str:
        """Return the URL of a database of this server alone."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def _each(self, act: Callable[[psutil.Process], None]) -> None:
        """Do something to every process of this node that is still there: one may end meanwhile."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                act(process)

    def _processes(self) -> list[psutil.Process]:
        """Return Patroni's processes and the server's, parents first."""
        found: list[psutil.Process] = []
        numbers = [] if self._process is None else [self._process.pid]
        file = self._folder / "data" / "postmaster.pid"
        if file.exists():
            numbers.append(int(file.read_text().split()[0]))
        for number in numbers:
            try:
                parent = psutil.Process(number)
                if str(self._folder) in " ".join(parent.cmdline()):  # the file may be an older process's
                    found += [parent, *parent.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return found

    def _settings(self, binaries: Path, etcd: str) -> dict[str, Any]:
        rest, server = f"127.0.0.1:{self._rest}", f"127.0.0.1:{self.port}"
        trust = ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
        return {
            "scope": "tollkeeper",
            "name": self.name,
            "restapi": {"listen": rest, "connect_address": rest},
            "etcd3": {"hosts": etcd},
            "bootstrap": {
                "dcs": {
                    "ttl": _TTL_SECONDS,
                    "loop_wait": 2,
                    "retry_timeout": 3,
                    "synchronous_mode": True,
                    "primary_start_timeout": 0,
                    "postgresql": {"use_pg_rewind": True, "parameters": {"wal_log_hints": "on"}},
                },
                "initdb": [{"encoding": "UTF8"}, {"auth-local": "trust"}, {"auth-host": "trust"}],
            },
            "postgresql": {
                "listen": server,
                "connect_address": server,
                "data_dir": str(self._folder / "data"),
                "bin_dir": str(binaries),
                "pgpass": str(self._folder / "pgpass"),
                "pg_hba": trust,
                "authentication": {
                    "superuser": {"username": _USER, "password": "unused"},
                    "replication": {"username": "replicator", "password": "unused"},
                },
                "parameters": {"unix_socket_directories": str(self._folder), "fsync": "off"},
            },
        }


class PatroniPair:
    """Two nodes and the etcd that they hold their leader's key in."""

    def __init__(self, binaries: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tollkeeper-patroni-"))
        as_user: list[str] = []
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self._client, self._peer = find_free_ports(2)
        self.nodes = [
            PatroniNode(self.folder, name, binaries, f"127.0.0.1:{self._client}", as_user) for name in ("p1", "p2")
        ]
        if os.geteuid() == 0:
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, user.pw_uid, user.pw_gid)
        self._etcd: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start everything; the second node follows the first, synchronously."""
        client, peer = f"http://127.0.0.1:{self._client}", f"http://127.0.0.1:{self._peer}"
        command = ["etcd", "--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync"]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
        command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        with (self.folder / "etcd.log").open("ab") as log:
            self._etcd = subprocess.Popen(command, stdout=log, stderr=log)
        for node in self.nodes:
            node.start()
            poll(lambda: self.leader() is not None, "a leader", _PATIENCE_SECONDS)
        self.wait_for_standby()

    def leader(self) -> PatroniNode | None:
        """Return the node that says that it takes writes."""
        return next((node for node in self.nodes if node.is_leader()), None)

    def wait_for_standby(self) -> None:
        """Wait until the other node has all that is committed. Shows what both Patronis logged last if it never has."""
        try:
            poll(self._has_standby, "a synchronous standby", _PATIENCE_SECONDS)
        except AssertionError:
            for node in self.nodes:
                print(f"{node.name}:", *node.last_lines(), sep="\n", file=sys.stderr)
            raise

    def url(self, database: str) -> str:
        """Return the URL that names both servers."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://{_USER}@{hosts}/{database}"

    def stop(self) -> None:
        """End everything and remove it."""
        with ExitStack() as all_of_it:  # what fails here leaves nothing else running
            all_of_it.callback(shutil.rmtree, self.folder, ignore_errors=True)
            if self._etcd is not None:
                all_of_it.callback(self._etcd.wait)
                all_of_it.callback(self._etcd.kill)
            for node in self.nodes:
                all_of_it.callback(node.stop)

    def _has_standby(self) -> bool:
        leader = self.leader()
        return leader is not None and any(one["role"] == "sync_standby" for one in leader.members())


@contextmanager
def running_patroni(binaries: Path) -> Iterator[PatroniPair]:
    """Start a pair and end it."""
    pair = PatroniPair(binaries)
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()
