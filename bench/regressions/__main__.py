"""Run the regression scenarios and judge their rows.

A scenario is a module `bench/regressions/GROUP/NAME.py` with a function `measure(report)`, which adds rows whose
metrics begin with the scenario's name. A new file is found without being registered.
"""

import argparse
import pkgutil
import sys
from importlib import import_module
from typing import Final

from bench.report import Report, run_bench

GROUPS: Final = ("money", "streams", "faults", "security")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", choices=GROUPS, action="append", help="group to run, repeatable (default: all)")
    parser.add_argument("--only", action="append", metavar="NAME", help="scenario to run, repeatable (default: all)")
    parser.add_argument(
        "--minutes",
        type=float,
        help="minutes that hung_processes stays under load and that upgrade_drill serves with both releases "
        "(default: 10, and a few seconds)",
    )
    parser.add_argument(
        "--pause-seconds",
        type=float,
        default=0.05,
        help="pause of each of upgrade_drill's six clients between two requests (default: 0.05)",
    )


def find_scenarios(groups: tuple[str, ...] = GROUPS) -> dict[str, str]:
    """Return the module of every scenario of these groups by the scenario's name."""
    found = {}
    for group in groups:
        package = import_module(f"bench.regressions.{group}")
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                found[module.name] = f"{package.__name__}.{module.name}"
    return found


def measure(report: Report) -> None:
    """Replay the defects that were found by outside use and count what is still wrong."""
    scenarios = find_scenarios(tuple(report.options.group or GROUPS))
    chosen = report.options.only or list(scenarios)
    unknown = sorted(set(chosen) - set(scenarios))
    if unknown:
        raise SystemExit(f"regressions: no scenario {', '.join(unknown)}; there are: {', '.join(sorted(scenarios))}")
    for name in chosen:
        import_module(scenarios[name]).measure(report)


if __name__ == "__main__":
    sys.exit(run_bench("regressions", measure, add_options=add_options))
