"""A redis-server of the tests' own, on a Unix socket, that can be killed, held up and started again."""

import asyncio
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from tests.conftest import poll


class RedisServer:
    """A real server without persistence: what is killed has lost its data."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="tollkeeper-redis-"))
        self.socket = self._directory / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._namespaces = 0

    @staticmethod
    def is_installed() -> bool:
        return shutil.which("redis-server") is not None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def namespace(self) -> str:
        """Return a name under which nothing is counted yet."""
        self._namespaces += 1
        return f"test-{self._namespaces}"

    def start(self) -> None:
        command = ["redis-server", "--port", "0", "--unixsocket", str(self.socket), "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(command, cwd=self._directory, stdout=subprocess.DEVNULL)
        poll(self._answers, "the start of redis-server")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.socket.unlink(missing_ok=True)

    def hold_up(self) -> None:
        """Let it take what comes and answer nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


async def happens(condition, what: str, seconds: float = 120.0) -> None:
    """Wait until something is so."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not happen within {seconds:g} seconds"
        await asyncio.sleep(0.005)
