"""`python -m collector`: load the settings, build, run."""

import logging
import sys

import uvloop
from pydantic import ValidationError

from backends.private_files import keep_private
from backends.process import FieldFormatter
from collector.app import Collector
from collector.settings import CollectorSettings
from contracts.errors import TollkeeperError


def main() -> int:
    """Run the collector. Exit code 2 and one line on stderr where it cannot start."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FieldFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # we say ourselves when we start and stop
    try:
        settings = CollectorSettings()
        keep_private(settings.data)
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
