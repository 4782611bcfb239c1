"""An engine host with the built-in model, for bodies that are tried on the way to an engine as well."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MODEL: Final = "builtin"
_CONTEXT_TOKENS: Final = 128  # an answer that nothing ends is over soon
_ROOT: Final = Path(__file__).resolve().parents[2]


@contextmanager
def engine_host(home: Path) -> Iterator[str]:
    """Run `python -m backends.engine`, its files below `home`; provide its URL. It may still be loading."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TOLLKEEPER_")}
    environment = kept | {
        "PYTHONPATH": str(_ROOT),
        "TOLLKEEPER_DATA": str(home),
        "TOLLKEEPER_ENGINE_EMBEDDER": "false",
        "TOLLKEEPER_ENGINE_CONTEXT_TOKENS": str(_CONTEXT_TOKENS),
        "TOLLKEEPER_ENGINE_KV_BYTES": str(32 << 20),
        "TOLLKEEPER_ENGINE_THREADS": "1",
    }
    home.mkdir(parents=True, exist_ok=True)
    with (home / "engine.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "backends.engine"], env=environment, stdout=log, stderr=log)
    try:
        yield f"unix://{home}/run/engine-default.sock"
    finally:
        process.terminate()
        process.wait()
