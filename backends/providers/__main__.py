"""`python -m backends.providers`: runs the provider host in the environment of constraints/providers.txt."""

import asyncio
import logging
import os
import sys

from backends.processes.process import run_process
from backends.providers.app import run
from backends.providers.settings import ProviderHostSettings

if __name__ == "__main__":
    # asyncio's own loop, because audit hooks cannot see uvloop's connections (`backends.providers.egress`).
    status = run_process("providers", ProviderHostSettings, lambda settings: asyncio.run(run(settings)))
    logging.shutdown()
    sys.stderr.flush()
    os._exit(status)  # do not wait for LiteLLM's threads, nor for the cleanup of its modules
