"""An engine host as a process of its own, with the built-in model."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from backends.engine.settings import BUILTIN_PATH

MODEL = "tollkeeper-5m"


class HostProcess:
    """`python -m backends.engine` with the built-in model, and with the embedder where asked."""

    def __init__(self, data: Path, *, embedder: bool) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.url = f"unix://{data}/run/engine-default.sock"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
        environment |= {
            "TOLLKEEPER_DATA": str(data),
            "TOLLKEEPER_ENGINE_MODEL": f"{MODEL}={BUILTIN_PATH}",
            "TOLLKEEPER_ENGINE_EMBEDDER": str(embedder).lower(),
            "TOLLKEEPER_ENGINE_KV_BYTES": str(128 << 20),
            "TOLLKEEPER_ENGINE_THREADS": "1",
        }
        with (data / "engine.log").open("ab") as log:
            command = [sys.executable, "-m", "backends.engine"]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
