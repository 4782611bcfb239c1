"""The current drain rate of a queue, from which `Retry-After` is computed."""

from collections import deque
from typing import Final

_REMEMBERED: Final = 64
_UNKNOWN_WAIT_SECONDS: Final = 1.0  # until two requests have started there is nothing to compute from
_SHORTEST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 3600.0


class DrainRate:
    """The times (ns) at which the last requests left the queue for the pool, while others waited."""

    def __init__(self) -> None:
        self._begun_ns: deque[int] = deque(maxlen=_REMEMBERED)
        self._last_per_second: float | None = None

    def note(self, now_ns: int) -> None:
        """Record that a request has started."""
        self._begun_ns.append(now_ns)

    def pause(self, now_ns: int) -> None:
        """Stop measuring because no request waits: only starts of waiting requests show the pool's speed."""
        self._last_per_second = self.per_second(now_ns)
        self._begun_ns.clear()

    def per_second(self, now_ns: int) -> float | None:
        """Return the requests per second from the oldest remembered start until now.

        While fewer than two are remembered, return the previous value; `None` if there was none.
        """
        if len(self._begun_ns) < 2:
            return self._last_per_second
        return (len(self._begun_ns) - 1) * 1e9 / max(now_ns - self._begun_ns[0], 1)

    def wait_seconds(self, ahead: int, now_ns: int) -> float:
        """Return how long `ahead` requests take to leave, 0.1 s to an hour; 1 s if unknown."""
        rate = self.per_second(now_ns)
        if rate is None:
            return _UNKNOWN_WAIT_SECONDS
        return min(max(ahead / rate, _SHORTEST_WAIT_SECONDS), _LONGEST_WAIT_SECONDS)
