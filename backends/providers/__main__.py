"""`python -m backends.providers`: the provider host, in the environment of constraints/providers.txt."""

import asyncio
import logging
import os
import sys

from backends.processes.process import run_process
from backends.providers.app import run
from backends.providers.settings import ProviderHostSettings

if __name__ == "__main__":
    # Python's own loop: what uvloop looks up and connects to, no audit hook sees (`backends.providers.egress`).
    status = run_process("providers", ProviderHostSettings, lambda settings: asyncio.run(run(settings)))
    logging.shutdown()
    sys.stderr.flush()
    os._exit(status)  # LiteLLM's own threads are not waited for, nor its thousands of modules taken apart
