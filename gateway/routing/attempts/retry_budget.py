"""The retry budget of a pool: a share of its requests, with a small minimum rate."""

from typing import Final

_SECOND_NS: Final = 1_000_000_000
_MOST_SAVED: Final = 100.0  # attempts earned by earlier requests: savings of a quiet hour must not feed a retry storm


class RetryBudget:
    """Tokens that requests earn and additional attempts spend (Finagle's RetryBudget, gRPC A6's retry throttling).

    In any period it grants at most `share` of the requests, `per_second` attempts for each started second, and what was
    saved before (100 attempts).
    """

    __slots__ = ("_saved", "_seen", "_since_ns", "_spare", "per_second", "refused", "requests", "share", "spent")

    def __init__(self, share: float, per_second: float) -> None:
        self.share = share
        self.per_second = per_second
        self.requests = 0  # raised by the caller that serves a request
        self.spent = 0
        self.refused = 0
        self._seen = 0
        self._saved = 0.0
        self._spare = max(per_second, 1.0) if per_second else 0.0
        self._since_ns: int | None = None

    def spend(self, now_ns: int) -> bool:
        """Take one attempt out of the budget; return whether there was one. `now_ns` is monotonic."""
        self._earn(now_ns)
        if self._spare >= 1:
            self._spare -= 1
        elif self._saved >= 1:
            self._saved -= 1
        else:
            self.refused += 1
            return False
        self.spent += 1
        return True

    def _earn(self, now_ns: int) -> None:
        new, self._seen = self.requests - self._seen, self.requests
        self._saved = min(self._saved + new * self.share, _MOST_SAVED)
        if self._since_ns is not None and self.per_second:
            seconds = max(now_ns - self._since_ns, 0) / _SECOND_NS
            self._spare = min(self._spare + seconds * self.per_second, max(self.per_second, 1.0))
        self._since_ns = now_ns
