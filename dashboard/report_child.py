"""`python -m dashboard.report_child`: reads a rollout's requests from stdin, compares both arms, writes the report.

A separate process, because its statistics library takes seconds and a hundred megabytes to load.
"""

import os
import sys

import msgspec

from analytics.comparison.arms import ArmsRead
from analytics.comparison.rollout_report import compare_arms

_NICENESS = 10  # lower priority than the pages


def main() -> None:
    """Read the requests, compare the arms and write the report."""
    os.nice(_NICENESS)
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=ArmsRead)
    sys.stdout.buffer.write(msgspec.msgpack.encode(compare_arms(task)))


if __name__ == "__main__":
    main()
