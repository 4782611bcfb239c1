"""`python -m gateway.sidecar`: step records of a vLLM that is not ours."""

import sys

from backends.processes.process import run_process
from gateway.sidecar.service import run
from gateway.sidecar.settings import SidecarSettings

if __name__ == "__main__":
    sys.exit(run_process("meter sidecar", SidecarSettings, run))
