"""One data plane as a process of its own, run from a YAML file: what it says of itself, and its records afterwards."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from bench.fleet.connection import Connection
from contracts.recording.records import RequestRecord, decode_record
from gateway.records.journal import Journal, unpack_entry

_ROOT: Final = Path(__file__).resolve().parents[2]
_START_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class GatewayProcess:
    """`python -m gateway` with a data directory of its own. Its records stay in its journal."""

    def __init__(
        self,
        name: str,
        home: Path,
        config: Mapping[str, Any],
        redis_url: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.port = free_port()
        self._data = home / name
        self._data.mkdir(parents=True, exist_ok=True)
        file = self._data / "gateway.yaml"
        file.write_text(yaml.safe_dump(dict(config)))
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TOLLKEEPER_")}
        self._environment = {
            **kept,
            "PYTHONPATH": str(_ROOT),
            "TOLLKEEPER_DATA": str(self._data),
            "TOLLKEEPER_GATEWAY_CONFIG": str(file),
            "TOLLKEEPER_GATEWAY_NAME": name,
            "TOLLKEEPER_IDLE_SECONDS": "3600",  # what is compared takes turns, and keeps its connections meanwhile
            "TOLLKEEPER_GATEWAY_PORT": str(self.port),
            "TOLLKEEPER_REDIS_URL": redis_url,
            "TOLLKEEPER_DRAIN_NOTICE_SECONDS": "0",
            **(environment or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process_id(self) -> int:
        """Return the id of its process, which has been started."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it and wait until it is ready. Raises RuntimeError with its log where it is not."""
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "gateway"]
            self._process = subprocess.Popen(command, env=self._environment, cwd=self._data, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_SECONDS
        while not await self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"gateway {self.name!r} is not ready:\n{self._log.read_text()[-2000:]}")
            await asyncio.sleep(_POLL_SECONDS)

    async def health(self) -> dict[str, Any]:
        """Return what GET /ready shows."""
        connection = await Connection.open(self.port)
        try:
            answer = await connection.ask(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        finally:
            connection.close()
        found = answer.json
        return found if isinstance(found, dict) else {}

    async def is_quiet(self, within_seconds: float) -> bool:
        """Wait until no request is under way; return whether that came to be in time."""
        deadline = time.monotonic() + within_seconds
        while (await self.health())["in_flight"]:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    def kill(self) -> None:
        """End it as `kill -9` does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Let it end in good order; kill it where it does not."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self._process.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def records(self) -> list[RequestRecord]:
        """Read its journal, once it has ended."""
        journal = Journal(self._data / "journal", max_bytes=1 << 30)
        try:
            entries = journal.read(journal.cursor, max_entries=10_000_000, max_bytes=1 << 31)
            decoded = [decode_record(unpack_entry(entry)[1]) for entry in entries]
        finally:
            journal.close()
        return [record for record in decoded if isinstance(record, RequestRecord)]

    def log(self) -> str:
        """Return what it wrote to its log."""
        return self._log.read_text()

    @property
    def _log(self) -> Path:
        return self._data / "gateway.log"

    async def _is_ready(self) -> bool:
        try:
            return (await self.health()).get("status") == "ready"
        except (OSError, asyncio.IncompleteReadError):
            return False
