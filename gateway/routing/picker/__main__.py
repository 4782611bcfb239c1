"""`python -m gateway.routing.picker`: the endpoint picker for Gateway API Inference Extension."""

import sys

from backends.processes.process import run_process
from gateway.routing.picker.service import run
from gateway.routing.picker.settings import PickerSettings

if __name__ == "__main__":
    sys.exit(run_process("endpoint picker", PickerSettings, run))
