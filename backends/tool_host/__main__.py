"""`python -m backends.tool_host`: runs the tool host."""

import asyncio
import logging
import sys

from backends.processes.process import run_process
from backends.tool_host.app import run
from backends.tool_host.settings import ToolHostSettings

if __name__ == "__main__":
    status = run_process("tools", ToolHostSettings, lambda settings: asyncio.run(run(settings)))
    logging.shutdown()
    sys.exit(status)
