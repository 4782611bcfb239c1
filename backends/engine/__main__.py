"""`python -m backends.engine`: an engine host."""

import logging
import os
import sys

from backends.engine.settings import EngineHostSettings
from backends.processes.kept_imports import kept_imports
from backends.processes.process import run_process


def run(settings: EngineHostSettings) -> None:
    """Serve until a signal to stop. Raises ConfigurationError if it cannot start."""
    with kept_imports():  # not before the settings are known to be good
        import uvloop

        from backends.engine.app import run as serve

    uvloop.run(serve(settings))


if __name__ == "__main__":
    status = run_process("engine", EngineHostSettings, run)
    logging.shutdown()
    sys.stderr.flush()
    os._exit(status)  # a stuck engine's thread, and torch's own, are not waited for
