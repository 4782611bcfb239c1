"""Whether a line that was refused or failed is retried, and when.

A refusal before a model was called costs nothing and is retried until the batch's window ends, after the time that the
refusal states. A failure at a model may have cost something and is retried a few times. Any other error is the line's
result.
"""

from typing import Final

from contracts.errors import ClientGone, LimitExceeded, TollkeeperError, Unavailable, UpstreamError
from gateway.request.attempt import NEVER_BEGUN

_MAX_FAILURES: Final = 3  # at models
_FIRST_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 60.0


class LineRetries:
    """Counts the attempts of one line, and decides whether to retry it."""

    def __init__(self) -> None:
        self.tries = 0
        self._failures = 0

    def wait_after(self, error: TollkeeperError) -> float | None:
        """Return the seconds to wait before the next attempt; `None` if there is none."""
        self.tries += 1
        if isinstance(error, LimitExceeded):
            return error.retry_after_seconds  # none where no wait brings room for so much
        if not error.retryable or isinstance(error, ClientGone):
            return None
        if isinstance(error, UpstreamError) and not isinstance(error, NEVER_BEGUN):
            self._failures += 1
        elif not isinstance(error, Unavailable | UpstreamError):
            self._failures += 1
        if self._failures >= _MAX_FAILURES:
            return None
        if error.retry_after_seconds is not None:
            return error.retry_after_seconds
        return min(_FIRST_SECONDS * (1 << min(self.tries - 1, 10)), _LONGEST_SECONDS)
