"""`python -m dashboard.forecast_child`: reads a history from stdin, computes one forecast and writes it to stdout.

A separate process, because loading the models takes seconds and a hundred megabytes, and all viewers' pages share
one process and core.
"""

import os
import sys

_NICENESS = 10  # lower priority than the pages


def main() -> None:
    """Read the history, compute the forecast and write it."""
    os.nice(_NICENESS)
    import msgspec  # imported here: loading takes as long as forecasting, and would slow down pages

    from analytics.forecast.outlook import OutlookTask  # as above

    task = msgspec.json.decode(sys.stdin.buffer.read(), type=OutlookTask)
    sys.stdout.buffer.write(msgspec.json.encode(task.forecast()))


if __name__ == "__main__":
    main()
