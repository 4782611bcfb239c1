"""How fast a queue drains at present: what `Retry-After` is computed from."""

from collections import deque
from typing import Final

_REMEMBERED: Final = 64
_UNKNOWN_WAIT_SECONDS: Final = 1.0  # until two have begun there is nothing to compute from
_LONGEST_WAIT_SECONDS: Final = 3600.0


class DrainRate:
    """The moments (ns) at which the last requests left the queue for the pool."""

    def __init__(self) -> None:
        self._begun_ns: deque[int] = deque(maxlen=_REMEMBERED)

    def note(self, now_ns: int) -> None:
        """Note that a request has begun."""
        self._begun_ns.append(now_ns)

    def per_second(self, now_ns: int) -> float | None:
        """Give the requests a second from the oldest remembered until now; `None` while fewer than two are."""
        if len(self._begun_ns) < 2:
            return None
        return (len(self._begun_ns) - 1) * 1e9 / max(now_ns - self._begun_ns[0], 1)

    def wait_seconds(self, ahead: int, now_ns: int) -> float:
        """Give how long so many requests take to leave, 0.1 s to an hour; 1 s where that is not known yet."""
        rate = self.per_second(now_ns)
        if rate is None:
            return _UNKNOWN_WAIT_SECONDS
        return min(max(ahead / rate, 0.1), _LONGEST_WAIT_SECONDS)
