"""The latest openings and closings of circuits, for the dashboard."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.routing.health.breaker import Breaker

_log = logging.getLogger(__name__)

_MOST: Final = 200  # of this process; the log has all
_MILLISECOND_NS: Final = 1_000_000


class HealthChanges:
    """Logs changes of breakers, and keeps the latest ones. `wall_ns` returns Unix time."""

    def __init__(self, wall_ns: Callable[[], int]) -> None:
        self._wall_ns = wall_ns
        self._kept: deque[dict[str, object]] = deque(maxlen=_MOST)

    def note(self, name: str, breaker: Breaker) -> None:
        """Record that a breaker has opened or closed. `name` is "pool/target" or "provider NAME"."""
        is_called = breaker.is_calm
        if is_called:
            _log.info("circuit closed", extra={"target": name})
        else:
            _log.warning("circuit opened", extra={"target": name, "reason": breaker.why})
        self._kept.append(
            {
                "at_ms": self._wall_ns() // _MILLISECOND_NS,
                "target": name,
                "change": "called_again" if is_called else "left_alone",
                "why": "" if is_called else breaker.why,
            }
        )

    def shown(self) -> list[dict[str, object]]:
        """Return the kept changes, oldest first. `at_ms` is Unix time in milliseconds."""
        return list(self._kept)
