"""One of our processes, killed as `kill -9` does and started again on the same data."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_START_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05
_LOG_BYTES: Final = 2000


class Service:
    """`python -m MODULE` with a directory and an environment of its own; ready when its page answers with 200."""

    def __init__(self, name: str, module: str, home: Path, ready_url: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self.data = home / name
        self.data.mkdir(parents=True, exist_ok=True)
        self.kills = 0
        self._module = module
        self.ready_url = ready_url
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TOLLKEEPER_")}
        own = {"PYTHONPATH": str(_ROOT), "TOLLKEEPER_DATA": str(self.data), "TOLLKEEPER_DRAIN_NOTICE_SECONDS": "0"}
        self.environment = {**kept, **own, **environment}
        self._log = self.data.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def run_from(self, root: Path) -> None:
        """Run the code of another checkout from the next start on."""
        self.environment["PYTHONPATH"] = str(root)

    def start(self) -> None:
        """Start it and wait until it is ready. Raises RuntimeError with the end of its log if it is not."""
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", self._module]
            self._process = subprocess.Popen(command, env=self.environment, cwd=self.data, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_SECONDS
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} is not ready:\n{self._log.read_text()[-_LOG_BYTES:]}")
            time.sleep(_POLL_SECONDS)

    @property
    def process_id(self) -> int:
        """Return the id of its process, which has been started."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it without warning, and count that."""
        self.kills += self.end()

    @property
    def is_running(self) -> bool:
        """Return whether its process has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def freeze(self) -> None:
        """Stop its process with SIGSTOP, as a debugger, a paused virtual machine or Ctrl-Z does."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let its process go on with SIGCONT."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        self._process.send_signal(number)

    def end(self) -> bool:
        """End it without warning; return whether it was running."""
        if self._process is None or self._process.poll() is not None:
            return False
        self._process.kill()
        self._process.wait()
        return True

    def stop(self) -> None:
        """Let it end in good order; kill it if it does not."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.end()

    def is_ready(self) -> bool:
        """Return whether its page answers with 200."""
        try:
            with urllib.request.urlopen(self.ready_url, timeout=2) as reply:
                return bool(reply.status == 200)
        except (OSError, urllib.error.URLError):
            return False
