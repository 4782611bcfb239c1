"""Schedule periodic work at common times, so that a process wakes once for all of it.

Each waking of a process that sleeps costs as much as several chunks of a stream, since what it looks at has left the
caches meanwhile.
"""

import asyncio
from typing import Final

_TOO_SOON: Final = 0.1  # of a period: a timer that rang early rings for the same beat again


def until_beat(seconds: float) -> float:
    """Return the seconds until the loop's clock is at a multiple of a period, but for one that is as good as now."""
    left = seconds - asyncio.get_running_loop().time() % seconds
    return left if left > _TOO_SOON * seconds else left + seconds
