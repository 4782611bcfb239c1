"""Times the store can live with: neither ancient nor from the future."""

from typing import Final

_SECOND_NS: Final = 1_000_000_000
OLDEST_NS: Final = 400 * 86_400 * _SECOND_NS  # a year and a bit: what daily partitions are made for
NEWEST_NS: Final = 3_600 * _SECOND_NS  # a sender's clock may run ahead a little
CLAMPED: Final = "clamped_time"
NEGATIVE_DURATION: Final = "negative_duration"


def clamp_time(time_ns: int, received_at_ns: int) -> int:
    """Bring a time into [received - 400 days, received + 1 hour].

    The batch's own receipt is the measure, not the present: a batch processed again after a crash must give the
    same rows, else the store would not know them for duplicates.
    """
    return min(max(time_ns, received_at_ns - OLDEST_NS), received_at_ns + NEWEST_NS)
