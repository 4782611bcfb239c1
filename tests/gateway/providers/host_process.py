"""A provider host as a process of its own, in the environment of constraints/providers.txt."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-providers" / "bin" / "python"
KEY = "sk-provider-0123456789-secret"
KEY_REF = "env:PROVIDER_KEY_OF_TESTS"


class ProviderHostProcess:
    """`python -m backends.providers` with one credential that it may read and one that it may not."""

    def __init__(self, data: Path, **settings: str) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.socket = data / "providers.sock"
        self.url = f"unix://{self.socket}"
        self.log = data / "providers.log"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")},
            "PYTHONPATH": str(ROOT),
            "TOLLKEEPER_DATA": str(data),
            "TOLLKEEPER_PROVIDERS_SOCKET": str(self.socket),
            "TOLLKEEPER_PROVIDERS_KEYS": KEY_REF,
            "PROVIDER_KEY_OF_TESTS": KEY,
            "ANTHROPIC_API_KEY": "sk-lies-around-in-the-environment",
            **settings,
        }
        with self.log.open("ab") as log:
            command = [str(PYTHON), "-P", "-m", "backends.providers"]
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while not self._listens():
            assert time.monotonic() < deadline, "the provider host does not start"
            time.sleep(0.02)

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        self.process.send_signal(signal_number)
        return self.process.wait(15)

    def _listens(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True


def litellm_target(model: str, url: str, name: str = "p1", **more: Any) -> dict[str, Any]:
    """A target of kind litellm with the credential that the host may read."""
    return {"name": name, "kind": "litellm", "model": model, "url": url, "key": KEY_REF, **more}
