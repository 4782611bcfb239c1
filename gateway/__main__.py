"""`python -m gateway`: the data plane."""

import sys

import uvloop

from backends.process import run_process
from gateway.app import run
from gateway.settings import GatewaySettings

if __name__ == "__main__":
    sys.exit(run_process("gateway", GatewaySettings, lambda settings: uvloop.run(run(settings))))
