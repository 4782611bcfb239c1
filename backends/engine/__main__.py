"""`python -m backends.engine`: an engine host."""

import logging
import os
import sys

import uvloop

from backends.engine.app import run
from backends.engine.settings import EngineHostSettings
from backends.processes.process import run_process

if __name__ == "__main__":
    status = run_process("engine", EngineHostSettings, lambda settings: uvloop.run(run(settings)))
    logging.shutdown()
    sys.stderr.flush()
    os._exit(status)  # a stuck engine's thread, and torch's own, are not waited for
