"""Limits times to the range that the store accepts: not too old and not in the future."""

from typing import Final

_SECOND_NS: Final = 1_000_000_000
OLDEST_NS: Final = 400 * 86_400 * _SECOND_NS  # more than a year: the range that daily partitions allow
NEWEST_NS: Final = 3_600 * _SECOND_NS  # a sender's clock may be ahead
CLAMPED: Final = "clamped_time"
NEGATIVE_DURATION: Final = "negative_duration"


def clamp_time(time_ns: int, received_at_ns: int) -> int:
    """Clamp a time (Unix ns) to [received - 400 days, received + 1 hour].

    Relative to the batch's receipt, not to now: a batch processed again after a crash must give the same rows, or the
    store could not recognise duplicates.
    """
    return min(max(time_ns, received_at_ns - OLDEST_NS), received_at_ns + NEWEST_NS)
