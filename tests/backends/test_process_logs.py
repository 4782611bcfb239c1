"""What every process logs, and what none may."""

import subprocess
import sys

_SCRIPT = """
import logging
from types import SimpleNamespace
from backends.processes.process import run_process

def run(settings):
    logging.getLogger("tollkeeper.test").info("ready")
    # As httpx words it for every call; a webhook's path is its secret.
    logging.getLogger("httpx").info("HTTP Request: POST https://hooks.slack.example/services/T0/B0/secret")

run_process("test", SimpleNamespace, run)
"""


def test_a_called_url_is_in_no_log() -> None:
    said = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    assert "tollkeeper.test: ready" in said.stderr and "secret" not in said.stderr
