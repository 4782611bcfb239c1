"""A redis-server of the measurement's own on loopback, without persistence."""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from bench.fleet.gateway import free_port

_START_SECONDS: Final = 10.0


class RedisServer:
    """A real server, empty at first. Used as a context manager, it is gone at the end."""

    def __init__(self) -> None:
        self._port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="tollkeeper-redis-"))
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def is_installed() -> bool:
        """Return whether there is a redis-server on this machine."""
        return shutil.which("redis-server") is not None

    @property
    def url(self) -> str:
        """Return what TOLLKEEPER_REDIS_URL takes."""
        return f"redis://127.0.0.1:{self._port}/0"

    @property
    def process_id(self) -> int:
        """Return the id of its process, which has been started."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        command = ["redis-server", "--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(command, cwd=self._directory, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"redis-server did not start on port {self._port}")
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def freeze(self) -> None:
        """Let it take what comes and answer nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it answer again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1.0) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False
