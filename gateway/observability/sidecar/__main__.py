"""`python -m gateway.observability.sidecar`: step records of a vLLM that is not ours."""

import sys

from backends.processes.process import run_process
from gateway.observability.sidecar.service import run
from gateway.observability.sidecar.settings import SidecarSettings

if __name__ == "__main__":
    sys.exit(run_process("meter sidecar", SidecarSettings, run))
