"""An embedded store for a benchmark: the engine of `python -m backends.store`, migrated, on a directory of its own."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from os import environ
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress, StoreRole
from backends.store.client import StoreClient
from bench.load.machine import pinned_to
from bench.load.processes import free_ports
from migrations.store import migrate_store, read_migrations

_STOP_SECONDS: Final = 30.0
_START_SECONDS: Final = 300.0
_ANSWER_SECONDS: Final = 3600


class StoreProcess:
    """A store in a process of its own; use as a context manager. Its directory is temporary and goes with it."""

    def __init__(
        self, *, core: int | None = None, memory_bytes: int | None = None, directory: Path | None = None
    ) -> None:
        """`core` is the only one the engine may use; `None` leaves it all. A `directory` that is given is kept."""
        self.data = directory or Path(tempfile.mkdtemp(prefix="tollkeeper-bench-store-"))
        self._is_kept = directory is not None
        self.http_port = free_ports(2)
        self.native_port = self.http_port + 1
        self.database = "tollkeeper"
        self._core = core
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            with (self.data / "store.log").open("ab") as log:
                command = [sys.executable, "-m", "backends.store"]
                with nullcontext() if self._core is None else pinned_to(self._core):
                    self._process = subprocess.Popen(
                        command, env={**environ, **self.environment}, stdout=log, stderr=log
                    )
            migrate_store(self.address("writer"), read_migrations(), wait_seconds=_START_SECONDS, say=lambda line: None)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if not self._is_kept:
            shutil.rmtree(self.data, ignore_errors=True)

    @property
    def url(self) -> str:
        """Where it answers over HTTP."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def pid(self) -> int:
        """Its process id. Raises RuntimeError before it was started."""
        if self._process is None:
            raise RuntimeError("the store was not started")
        return self._process.pid

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which a process finds this store, and the store is this one."""
        found = {
            "TOLLKEEPER_DATA": str(self.data),
            "TOLLKEEPER_STORE_URL": self.url,
            "TOLLKEEPER_STORE_HTTP_PORT": str(self.http_port),
            "TOLLKEEPER_STORE_NATIVE_PORT": str(self.native_port),
        }
        if self._memory_bytes is not None:
            found["TOLLKEEPER_STORE_MEMORY_BYTES"] = str(self._memory_bytes)
        return found

    def address(self, role: StoreRole) -> StoreAddress:
        """Return its address with the credentials of a role."""
        return StoreAddress.resolve(self.url, self.database, role, SecretFiles(self.data / "secrets"))

    def client(self, role: StoreRole) -> StoreClient:
        """Connect. Statements may take an hour."""
        return StoreClient(self.address(role), answer_seconds=_ANSWER_SECONDS)

    def peak_resident_bytes(self) -> int:
        """Return the most memory it has had in RAM, the mapped engine included."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"process {self.pid} has no VmHWM")
