"""Times: now in UTC, and as integers, Unix nanoseconds of a UTC datetime, exactly."""

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def unix_ns(moment: datetime) -> int:
    """Convert an aware datetime to Unix nanoseconds. Integers only: a float would lose the last three digits."""
    return (moment - EPOCH) // _MICROSECOND * 1_000


def utc_moment(nanoseconds: int) -> datetime:
    """Convert Unix nanoseconds to a UTC datetime, truncated to microseconds."""
    return EPOCH + nanoseconds // 1_000 * _MICROSECOND
