"""`python -m gateway`: the data plane."""

import logging
import os
import sys
from typing import Final

from backends.processes.compiled import CompiledModules, use_compiled

_log: Final = logging.getLogger("gateway")


def main() -> int:
    """Run the data plane until it stops, compiled where possible. Return the exit status."""
    # Products of vectors are small here: threads would wait for one another, and the event loop for them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    found = use_compiled()
    # From here on a module is what was found of it.
    from backends.processes.kept_imports import kept_imports
    from backends.processes.process import run_process
    from gateway.process.settings import GatewaySettings

    def run_told(settings: GatewaySettings) -> None:
        with kept_imports():  # not before the settings are known to be good
            import uvloop

            from gateway.process.app import run

        uvloop.run(run(settings, lambda: _tell(found)))

    return run_process("gateway", GatewaySettings, run_told)


def _tell(found: CompiledModules) -> None:
    """Report once whether the hot modules run compiled."""
    level = logging.WARNING if found.state == "stale" else logging.INFO
    _log.log(level, "hot modules", extra={"state": found.state, "reason": found.reason})


if __name__ == "__main__":
    sys.exit(main())
