"""Whether a line that was refused or failed is tried again, and when.

What was refused before any model saw it costs nothing and is tried until the batch's window ends, after as long as the
refusal says. What failed at a model may have cost something and is tried a few times. The rest is the line's result.
"""

from typing import Final

from contracts.errors import ClientGone, LimitExceeded, TollkeeperError, Unavailable, UpstreamError
from gateway.request.attempt import NEVER_BEGUN

_MAX_FAILURES: Final = 3  # at models
_FIRST_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 60.0


class Patience:
    """How often one line has been tried, and how it went."""

    def __init__(self) -> None:
        self.tries = 0
        self._failures = 0

    def wait_after(self, error: TollkeeperError) -> float | None:
        """Return how many seconds to wait before the next try; `None` if there is to be none."""
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
