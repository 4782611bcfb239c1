"""How well and how fast a replica is chosen: every policy on Mooncake's trace, under faults, and one choice's time.

The router is the gateway's own code throughout, compiled where the gateway's process would have it so; replicas are
simulated, but for two engine hosts at the end. `--trace FILE` plays another trace in Mooncake's format in place of the
one that is kept here.
"""

import argparse
import sys
from collections.abc import Sequence

from backends.processes.compiled import use_compiled


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    use_compiled()
    # From here on a module is what was found of it.
    from bench.report import run_bench
    from bench.routing_rows import measure
    from bench.routing_workloads import TRACE

    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--simulated", action="store_true", help="without the rows of real engine hosts")
        parser.add_argument(
            "--trace", default=str(TRACE), help="a trace in Mooncake's format, in place of the one here"
        )

    return run_bench("routing", measure, arguments, add_options)


if __name__ == "__main__":
    sys.exit(main())
