"""`python -m backends.providers`: the provider host, in the environment of constraints/providers.txt."""

import logging
import os
import sys

import uvloop

from backends.process import run_process
from backends.providers.app import run
from backends.providers.settings import ProviderHostSettings

if __name__ == "__main__":
    status = run_process("providers", ProviderHostSettings, lambda settings: uvloop.run(run(settings)))
    logging.shutdown()
    sys.stderr.flush()
    os._exit(status)  # LiteLLM's own threads are not waited for, nor its thousands of modules taken apart
