"""`python -m bench.scripted_host`: an engine host whose models play a script. Same settings as a real one.

SCRIPT_STEP_SECONDS, SCRIPT_MAX_SEQUENCES, SCRIPT_TOKENS and SCRIPT_CONTEXT_TOKENS say how it plays; without them, as
fast as it can. SCRIPT_BUSY=1: its steps compute instead of sleeping.
"""

import os
import sys
import threading

import uvloop

from backends.engine.app import serve
from backends.engine.settings import EngineHostSettings
from backends.processes.process import run_process
from bench.scripted_engine import Script, scripted_builder


def main() -> int:
    """Run the host; 0 after a stop that was asked for, 2 if it cannot run."""
    script = Script(
        step_seconds=float(os.environ.get("SCRIPT_STEP_SECONDS", "0")),
        max_sequences=int(os.environ.get("SCRIPT_MAX_SEQUENCES", "256")),
        tokens=int(os.environ.get("SCRIPT_TOKENS", "1")),
        is_busy=os.environ.get("SCRIPT_BUSY", "") == "1",
        context_tokens=int(os.environ.get("SCRIPT_CONTEXT_TOKENS", str(1 << 20))),
    )

    def run(settings: EngineHostSettings) -> None:
        uvloop.run(serve(settings, scripted_builder(script), threading.Lock(), kind="scripted"))

    return run_process("engine", EngineHostSettings, run)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # threads that play are not waited for
