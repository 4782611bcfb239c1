"""Measures cold starts of models, and predicts their duration."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal

ColdStart = Literal["load", "wake"]

_REMEMBERED: Final = 8


@dataclass(slots=True)
class ColdStarts:
    """The durations (ns) of the last few starts of each model, by kind."""

    _seen: dict[tuple[str, ColdStart], deque[int]] = field(default_factory=dict)

    def note(self, model: str, kind: ColdStart, took_ns: int) -> None:
        """Record the duration of a start."""
        self._seen.setdefault((model, kind), deque(maxlen=_REMEMBERED)).append(took_ns)

    def expected_ns(self, model: str, kind: ColdStart) -> int | None:
        """Return the median of the recent durations; `None` if there are none."""
        seen = self._seen.get((model, kind))
        return round(median(seen)) if seen else None

    def last_ns(self, model: str, kind: ColdStart) -> int | None:
        """Return the last duration; `None` if there is none."""
        seen = self._seen.get((model, kind))
        return seen[-1] if seen else None
