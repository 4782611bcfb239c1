"""Processes on a core of their own, and the ports they listen on."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

from bench.load.machine import pinned_to, tree

_STOP_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.05
_LOG_BYTES: Final = 2000


def free_ports(count: int = 1) -> int:
    """Return the first of the given number of consecutive TCP ports that were free a moment ago. Raises RuntimeError
    without.
    """
    for _ in range(100):
        with ExitStack() as listeners:
            first = listeners.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            with suppress(OSError, OverflowError):
                for following in range(port + 1, port + count):
                    listeners.enter_context(socket.socket()).bind(("127.0.0.1", following))
                return port
    raise RuntimeError(f"there are no {count} consecutive free ports")


class PinnedProcess:
    """A process on one core, its output in a file of the directory it runs in."""

    def __init__(self, name: str, command: Sequence[object], core: int, home: Path, **environment: str) -> None:
        self.name = name
        self._log = home / f"{name}.log"
        with self._log.open("ab") as log, pinned_to(core):
            self._process = subprocess.Popen(
                [str(part) for part in command], cwd=home, stdout=log, stderr=log, env=environment or None
            )

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def wait_for(self, condition: Callable[[], bool], within_seconds: float = 300.0) -> Self:
        """Wait until it is ready. Raises RuntimeError with the end of its log if it is not; it is ended then."""
        deadline = time.monotonic() + within_seconds
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{self.name} is not ready: {self._log.read_text()[-_LOG_BYTES:]}")
            time.sleep(_POLL_SECONDS)
        return self

    def stop(self) -> None:
        """End it in good order, and what it started with it; kill what does not end."""
        members = tree(self.pid)
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for member in members[1:]:
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)


def get_json(port: int, path: str) -> Any:
    """Ask a process on this machine. Raises OSError if nobody answers; an answer of any status is read."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def answers_chat(port: int, model: str, headers: Mapping[str, str]) -> bool:
    """Return whether a chat is answered with 200."""
    body = {"model": model, "messages": [{"role": "user", "content": "Are you there?"}], "max_tokens": 3}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", **headers},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:  # URLError and HTTPError among them
        return False
