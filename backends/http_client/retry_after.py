"""Parses the `Retry-After` header, in seconds or as a date."""

import time
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

_LONGEST_WAIT_SECONDS: Final = 86_400.0


def retry_after_seconds(value: str | bytes | None) -> float | None:
    """Return the seconds to wait from now, 0 or more; `None` if the header is absent, unreadable, or a day or more."""
    if value is None:
        return None
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
            seconds = max(0.0, (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - time.time())
        except (ValueError, TypeError, OverflowError):  # dates that no calendar has
            return None
    return seconds if 0 <= seconds < _LONGEST_WAIT_SECONDS else None
