"""`python -m collector`: runs the collector.

`python -m collector --settle` completes an insert that a killed collector left unfinished, then exits.
"""

import argparse
import logging
import sys
from collections.abc import Sequence

from pydantic import ValidationError

from backends.processes.kept_imports import kept_imports
from backends.processes.logs import start_logging
from backends.processes.process import require_known_variables
from backends.secrets.private_files import keep_private
from collector.settings import CollectorSettings
from contracts.errors import TollkeeperError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the collector and return the exit code: 2, with one line on stderr, if it cannot start or settle."""
    parser = argparse.ArgumentParser(prog="python -m collector", description="Run the collector.")
    parser.add_argument(
        "--settle",
        action="store_true",
        help="complete an insert that a killed collector left unfinished, then exit; run this before a migration",
    )
    given = parser.parse_args(arguments)
    start_logging()
    try:
        require_known_variables()
        settings = CollectorSettings()
        start_logging(settings)
        logging.getLogger("uvicorn").setLevel(logging.WARNING)  # the collector logs its start and stop itself
        keep_private(settings.data)
        with kept_imports():  # only after the settings were validated
            import uvloop

            from collector.app import SETTLE_SECONDS, Collector, settle

        if given.settle:
            if settle(settings):
                return 0
            print(
                f"collector: the insert in progress when a collector was killed is not settled after "
                f"{SETTLE_SECONDS:.0f} s; see the log above",
                file=sys.stderr,
            )
            return 2
        collector = Collector(settings)
    except ValidationError as error:
        first = error.errors()[0]
        variable = "TOLLKEEPER_" + "_".join(str(part) for part in first["loc"]).upper()
        print(f"collector: {variable}: {first['msg']}", file=sys.stderr)
        return 2
    except TollkeeperError as error:
        print(f"collector: {error.message}", file=sys.stderr)
        return 2
    uvloop.run(collector.run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
