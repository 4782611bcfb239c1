"""Measure cold starts of models, and predict the next ones."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal

ColdStart = Literal["load", "wake"]

_REMEMBERED: Final = 8


@dataclass(slots=True)
class ColdStarts:
    """The last few starts of each model, by kind. In ns; nothing is known before the first."""

    _seen: dict[tuple[str, ColdStart], deque[int]] = field(default_factory=dict)

    def note(self, model: str, kind: ColdStart, took_ns: int) -> None:
        """Remember one."""
        self._seen.setdefault((model, kind), deque(maxlen=_REMEMBERED)).append(took_ns)

    def expected_ns(self, model: str, kind: ColdStart) -> int | None:
        """Return the median of recent ones; `None` if there were none."""
        seen = self._seen.get((model, kind))
        return round(median(seen)) if seen else None

    def last_ns(self, model: str, kind: ColdStart) -> int | None:
        """Return the last one."""
        seen = self._seen.get((model, kind))
        return seen[-1] if seen else None
