"""Delays between attempts to reach the store."""

import random

FIRST_SECONDS = 0.1
MOST_SECONDS = 5.0


class Backoff:
    """Exponential backoff from 0.1 to 5 seconds with jitter: each delay is random in the upper half of the interval."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._seconds = FIRST_SECONDS

    def next_seconds(self) -> float:
        """Return the next delay in seconds, and count another failed attempt."""
        longest, self._seconds = self._seconds, min(self._seconds * 2, MOST_SECONDS)
        return longest * self._source.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Reset to the shortest delay, after a successful attempt."""
        self._seconds = FIRST_SECONDS
