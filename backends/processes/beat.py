"""Aligns periodic work to common times, so that a process wakes once for all of it.

Each wake-up of a sleeping process costs as much as several chunks of a stream, because its data has left the caches.
"""

import asyncio
from typing import Final

_TOO_SOON: Final = 0.1  # of a period: skips a multiple that a timer which fired early was meant for


def until_beat(seconds: float) -> float:
    """Return the seconds until the loop's clock reaches the next multiple of `seconds`, skipping one that is almost
    due.
    """
    left = seconds - asyncio.get_running_loop().time() % seconds
    return left if left > _TOO_SOON * seconds else left + seconds
