"""The control plane's port for commands."""

import os

from tollkeeper.ports import Ports


def control_port() -> int:
    """Return the control plane's port as this shell's environment has it."""
    return Ports.from_environment(os.environ).control
