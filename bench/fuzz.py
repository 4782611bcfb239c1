"""Tries the data plane's HTTP and JSON with what nobody should send, for as long as it is told: `--minutes 60`.

The same properties are tried for some seconds by the tests. Each round has a seed, printed on standard error; a
round is tried again with `--seed N`. The smallest example that breaks a property is written down.
"""

import argparse
import itertools
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.fuzzing.engine_host import MODEL, engine_host
from bench.fuzzing.properties import PROPERTIES, Failed, attempt
from bench.fuzzing.rig import FuzzRig
from bench.report import Report, run_bench

FAILURES: Final = Path(".hypothesis") / "fuzz"
_MINUTES: Final = 10.0
_QUICK_MINUTES: Final = 0.5
_EXAMPLES: Final = 200  # of each property in a round; a seed stands for as many


def measure(report: Report) -> None:
    """Try every property in rounds, each by a seed of its own, until the time is over."""
    minutes = report.options.minutes or (_QUICK_MINUTES if report.quick else _MINUTES)
    deadline = time.monotonic() + minutes * 60
    first = random.SystemRandom().randrange(2**32) if report.options.seed is None else report.options.seed
    examples: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tollkeeper-fuzz-")))
        url = stack.enter_context(engine_host(home / "engine"))
        rig = stack.enter_context(FuzzRig(home, engine=(url, MODEL)))
        for seed in itertools.count(first):
            print(f"fuzz: seed {seed}", file=sys.stderr)
            for tried in PROPERTIES:
                try:
                    examples[tried.name] += attempt(rig, tried, _EXAMPLES, seed)
                except Failed as failed:
                    failures[tried.name] += 1
                    print(f"fuzz: {write_down(failed, seed)} has what breaks {tried.name}", file=sys.stderr)
            # The first round is tried whole, however little time there is.
            if time.monotonic() >= deadline:
                break
    for tried in PROPERTIES:
        report.add(
            f"{tried.name}_broken", failures[tried.name], "rounds", must=0, better="lower", n=examples[tried.name]
        )
    report.add("examples", examples.total(), "examples", n=examples.total())


def write_down(failed: Failed, seed: int, folder: Path = FAILURES) -> Path:
    """Keep what breaks a property: what broke, by which seed, and the example."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{failed.name}-{seed}.txt"
    file.write_text(f"{failed.name}, seed {seed}, {_EXAMPLES} examples\n{failed.cause!r}\n\n{failed.example!r}\n")
    return file


def add_options(parser: argparse.ArgumentParser) -> None:
    """Let the time and the first seed be told."""
    parser.add_argument("--minutes", type=float, help=f"how long, {_MINUTES:g} unless told")
    parser.add_argument("--seed", type=int, help="the first round's; the following ones count up from it")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended on the way out
    sys.exit(run_bench("fuzz", measure, add_options=add_options))
