"""`python -m dashboard.report_child`: compares the arms of a rollout that stand on its input, and writes the report.

A process of its own, as forecasts have: what it computes intervals with takes seconds and a hundred megabytes to load.
"""

import os
import sys

import msgspec

from analytics.comparison.arms import ArmsRead
from analytics.comparison.rollout_report import compare_arms

_NICENESS = 10  # pages go first


def main() -> None:
    """Write the report."""
    os.nice(_NICENESS)
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=ArmsRead)
    sys.stdout.buffer.write(msgspec.msgpack.encode(compare_arms(task)))


if __name__ == "__main__":
    main()
