"""Runs every benchmark of `make bench`, each in a process of its own, its arguments passed on."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Final

BENCHMARKS: Final = (
    "records",
    "attribution",
    "engine",
    "engine_wire",
    "engine_gpu",
    "gpu_cancelled",
    "gpu_sidecar",
    "identity",
    "admission",
    "shared_counters",
    "high_availability",
    "endpoint_picker",
    "fairness",
    "routing",
    "failures",
    "answer_cache",
    "semantic",
    "guardrails",
    "store",
    "gateway",
    "agents",
    "fuzz",
    "soak",
    "collector",
    "crash",
    "away",
    "analytics",
    "books",
    "reconcile",
    "newcomer",
    "dashboard",
    "structure",
)


def main(arguments: Sequence[str]) -> int:
    """Run all, even after one has missed its must; return 1 when any did."""
    statuses = [subprocess.call([sys.executable, "-m", f"bench.{name}", *arguments]) for name in BENCHMARKS]
    return 1 if any(statuses) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
