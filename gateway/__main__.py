"""`python -m gateway`: the data plane."""

import os
import sys

import uvloop

from backends.process import run_process
from gateway.app import run
from gateway.settings import GatewaySettings

if __name__ == "__main__":
    # Products of vectors are small here: threads would wait for one another, and the event loop for them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(run_process("gateway", GatewaySettings, lambda settings: uvloop.run(run(settings))))
