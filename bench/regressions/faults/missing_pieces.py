"""A restore drill, starts with pieces that are missing, and rows that cannot be read: what goes on without a word?

`tollkeeper up` serves a chat; rows of its control database are broken by hand and every list is asked for. Then it is
backed up and stopped. Copies are started without their secrets; the backup is restored to an empty place, before the
secrets are there and after; and the installation is started without its store, journal and spool.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from backends.control.known_secrets import DEPENDS
from bench.regressions.faults.drain import UP_PORTS, free_ports
from bench.report import Report

_UP_SECONDS: Final = 300.0
_STORED_SECONDS: Final = 30.0
_READY: Final = "Tollkeeper is ready"
_LOST: Final = ("all", "key_pepper", "another key_pepper", "audit_signing_key")
_DATA: Final = ("store", "journal", "spool")
# What is broken by hand, the list that shows it, the row's table, and what repairs it (none: it is deleted).
_BROKEN: Final[tuple[tuple[str, str, str, dict[str, object] | None], ...]] = (
    ("UPDATE pools SET settings = '{'", "/v1/pools", "pools", {"settings": {}}),
    ("UPDATE targets SET settings = ''", "/v1/pools/{pool}/targets", "targets", {"settings": {}}),
    ("UPDATE models SET settings = 'no'", "/v1/models", "models", {"settings": {}}),
    ("UPDATE tenants SET created_at = 'then'", "/v1/tenants", "tenants", {"created_at": "2026-11-01T00:00:00Z"}),
    ("UPDATE prices SET card = '{'", "/v1/prices", "prices", None),
)


def measure(report: Report) -> None:
    """Break rows, lose secrets, restore, lose data; count what was broken, silent or past verification."""
    with tempfile.TemporaryDirectory(prefix="tollkeeper-pieces-") as home:
        drill = _Drill(Path(home))
        with drill.running(drill.data) as url:
            drill.serve(url)
            broken, unsettled = drill.break_rows(url)
            drill.wait_until_stored()
            drill.back_up()
        silent = sum(drill.starts_without(lost) for lost in _LOST)
        unsound, restored_silently = drill.restore()
        unreported = drill.lose_data()
    report.add("missing_pieces_lists_broken", broken, "lists", must=0, better="lower", n=len(_BROKEN))
    report.add("missing_pieces_rows_unsettled", unsettled, "rows", must=0, better="lower", n=len(_BROKEN))
    starts = silent + restored_silently
    report.add("missing_pieces_silent_starts", starts, "starts", must=0, better="lower", n=len(_LOST) + 1)
    report.add("missing_pieces_audits_unsound", unsound, "audits", must=0, better="lower", n=2)
    report.add("missing_pieces_losses_unreported", unreported, "pieces", must=0, better="lower", n=len(_DATA))


class _Drill:
    """One installation, its backup, and the copies that are made of it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.data = home / "data"
        self._copy = home / "backup"
        self._base = free_ports(UP_PORTS)
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}

    def command(self, *words: str, data: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command on a data directory."""
        environment = {**self._environment, "TOLLKEEPER_STORE_HTTP_PORT": str(self._base + 7)}
        environment["TOLLKEEPER_STORE_NATIVE_PORT"] = str(self._base + 8)
        return subprocess.run(
            [sys.executable, "-m", "tollkeeper", *words, "--data", str(data or self.data)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_UP_SECONDS,
        )

    @contextmanager
    def running(self, data: Path) -> Iterator[str]:
        """Run an installation; provide the control plane's address. Raise RuntimeError if it does not start."""
        process, log = self._start(data)
        try:
            if not self._is_started(process, log):
                raise RuntimeError(f"`tollkeeper up` did not start:\n{log.read_text()[-2000:]}")
            yield f"http://127.0.0.1:{self._base + 1}"
            process.send_signal(signal.SIGINT)
            process.wait(_UP_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()  # it takes its children with it
                process.wait()

    def _start(self, data: Path) -> tuple["subprocess.Popen[bytes]", Path]:
        log = data.with_name(f"{data.name}.log")
        words = ["up", "--data", str(data), "--port-base", str(self._base), "--no-dashboard", "--no-engine"]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "tollkeeper", *words], env=self._environment, stdout=file, stderr=file
            )
        return process, log

    def _is_started(self, process: "subprocess.Popen[bytes]", log: Path) -> bool:
        deadline = time.monotonic() + _UP_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if _READY in log.read_text():
                return True
            time.sleep(0.1)
        return False

    def _client(self, url: str, data: Path) -> httpx.Client:
        token = (data / "secrets" / "admin_token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=url, headers=headers, timeout=30.0, trust_env=False)

    def serve(self, url: str) -> None:
        """Answer a chat, and change something."""
        key = (self.data / "secrets" / "demo_key").read_text().strip()
        with self._client(url, self.data) as client:
            client.post("/v1/tenants", json={"id": "acme", "name": "Acme"}).raise_for_status()
            client.put("/v1/stored-keys/provider", json={"value": "sk-provider"}).raise_for_status()
            card = {"model": "priced", "version": "priced/1", "usd_per_mtok": {"input_text": "1"}}
            client.post("/v1/prices", json=card).raise_for_status()
            model = client.get("/v1/models").json()["data"][0]["id"]
        chat = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
        reply = httpx.post(
            f"http://127.0.0.1:{self._base}/v1/chat/completions",
            json=chat,
            headers={"Authorization": f"Bearer {key}"},
            timeout=30.0,
            trust_env=False,
        )
        reply.raise_for_status()

    def break_rows(self, url: str) -> tuple[int, int]:
        """Break one row of each table; return the lists that were broken, and the rows that could not be settled."""
        broken = unsettled = 0
        with self._client(url, self.data) as client:
            for statement, path, table, values in _BROKEN:
                row, keys, whole = self._break(statement, table)
                listed = _answer(client, "GET", path.format(pool=keys[0]))
                broken += row not in [one["id"] for one in listed.get("unreadable", ())]
                how, body = ("DELETE", None) if values is None else ("PATCH", {"values": values})
                if not _answer(client, how, f"/v1/unreadable-rows/{table}/{row}", body):
                    unsettled += 1
                    self._mend(table, whole)
        return broken, unsettled

    def _break(self, statement: str, table: str) -> tuple[str, tuple[str, ...], dict[str, object]]:
        with closing(sqlite3.connect(self.data / "control.db", timeout=30)) as database, database:
            database.row_factory = sqlite3.Row
            keys = [row["name"] for row in database.execute(f"PRAGMA table_info({table})") if row["pk"]]
            if table == "targets":
                keys = ["pool_id", "id"]
            whole = dict(database.execute(f"SELECT * FROM {table} ORDER BY rowid DESC LIMIT 1").fetchone())
            named = tuple(str(whole[key]) for key in keys)
            database.execute(f"{statement} WHERE {' AND '.join(f'{key} = ?' for key in keys)}", named)
        return "/".join(named), named, whole

    def _mend(self, table: str, whole: dict[str, object]) -> None:
        """Put a row back by hand, where the product could not."""
        with closing(sqlite3.connect(self.data / "control.db", timeout=30)) as database, database:
            names = list(whole)
            marks = ", ".join("?" for _ in names)
            database.execute("PRAGMA foreign_keys = OFF")
            database.execute(f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({marks})", [*whole.values()])

    def wait_until_stored(self) -> None:
        """Wait until the store has the chat."""
        health = f"http://127.0.0.1:{self._base + 6}/health"
        deadline = time.monotonic() + _STORED_SECONDS
        while time.monotonic() < deadline:
            if httpx.get(health, trust_env=False).json()["exported"].get("requests"):
                return
            time.sleep(0.2)
        raise RuntimeError("the store has not taken the chat's record")

    def back_up(self) -> None:
        """Create the backup and a copy of the secrets."""
        made = self.command("backup", str(self._copy))
        if made.returncode:
            raise RuntimeError(f"no backup: {made.stderr}")
        shutil.copytree(self.data / "secrets", self._home / "kept")

    def starts_without(self, lost: str) -> bool:
        """Return whether a copy of the installation starts without these secrets."""
        place = self._home / f"without-{lost.replace(' ', '-')}"
        shutil.copytree(self.data, place, ignore=shutil.ignore_patterns("store", "run"))
        secrets = place / "secrets"
        if lost == "all":
            shutil.rmtree(secrets)
        elif lost.startswith("another "):
            (secrets / lost.removeprefix("another ")).write_text("A" * 43 + "\n")
        else:
            (secrets / lost).unlink()
        return self._goes_on(place)

    def _goes_on(self, place: Path) -> bool:
        process, log = self._start(place)
        try:
            return self._is_started(process, log) or "secrets" not in log.read_text()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(_UP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def restore(self) -> tuple[int, int]:
        """Restore before the secrets are there, start, put them back; return audits past verification, and starts."""
        place = self._home / "restored"
        early = self.command("restore", str(self._copy), data=place)
        went_on = (place / "control.db").exists() and self._goes_on(place)
        for file in (self._home / "kept").iterdir():
            if not file.name.startswith("store_"):
                (place / "secrets").mkdir(parents=True, exist_ok=True)
                shutil.copy(file, place / "secrets" / file.name)
        if early.returncode:
            self._restore_or_raise(place)
        unsound = int(not self._verifies_after_a_start(place))

        bare = self._home / "bare"
        self.command("restore", str(self._copy), "--anyway", data=bare)
        names = sorted(path.name for path in (self._home / "kept").iterdir())
        remembered = [name for name in names if name in DEPENDS]
        accepted = self.command("secrets", "accept", *remembered, "--reason", "a drill", data=bare)
        if accepted.returncode:
            raise RuntimeError(f"lost secrets are not accepted: {accepted.stderr}")
        unsound += int(not self._verifies_after_a_start(bare))
        return unsound, int(went_on)

    def _restore_or_raise(self, place: Path) -> None:
        again = self.command("restore", str(self._copy), data=place)
        if again.returncode:
            raise RuntimeError(f"no restore with the secrets in place: {again.stderr}")

    def _verifies_after_a_start(self, place: Path) -> bool:
        try:
            with self.running(place):
                pass
        except RuntimeError:
            return False
        return self.command("audit", "verify", data=place).returncode == 0

    def lose_data(self) -> int:
        """Remove the store, the journal and the spool; return how many of them the next start says nothing of."""
        for name in _DATA:
            shutil.rmtree(self.data / name)
        with self.running(self.data):
            pass
        log = (self.data.with_name(f"{self.data.name}.log")).read_text()
        doctor = self.command("doctor").stdout
        said = [name for name in _DATA if f"/{name}" in _missing_lines(log) and name in doctor]
        return len(_DATA) - len(said)


def _answer(client: httpx.Client, method: str, path: str, body: object = None) -> dict[str, Any]:
    """Return the answer of a call that succeeded, else nothing; a server that failed may have closed the connection."""
    try:
        reply = client.request(method, path, json=body)
    except httpx.TransportError:
        reply = client.request(method, path, json=body)
    found: dict[str, Any] = reply.json() if reply.is_success else {}
    return found


def _missing_lines(log: str) -> str:
    return "\n".join(line for line in log.splitlines() if "was missing" in line)
