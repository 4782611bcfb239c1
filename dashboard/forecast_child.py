"""`python -m dashboard.forecast_child`: makes one forecast of what stands on its input, and writes it on its output.

A process of its own: the models take seconds and a hundred megabytes to load, and the pages of all viewers share one
core and a small process.
"""

import os
import sys

_NICENESS = 10  # pages go first


def main() -> None:
    """Create the forecast."""
    os.nice(_NICENESS)
    import msgspec  # here, for loading takes as long as forecasting and would be in the way of pages

    from analytics.forecast.outlook import OutlookTask  # as above

    task = msgspec.json.decode(sys.stdin.buffer.read(), type=OutlookTask)
    sys.stdout.buffer.write(msgspec.json.encode(task.forecast()))


if __name__ == "__main__":
    main()
