"""A figure with how sure it is: what comparisons come to."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, the ends of its 95 % interval, and how many observations it is told by."""

    value: float
    low: float
    high: float
    count: int
    method: str

    def as_json(self) -> dict[str, object]:
        """Return this as plain values; an end that one observation says nothing of is `None`."""
        low, high = (end if math.isfinite(end) else None for end in (self.low, self.high))
        return {"value": self.value, "low": low, "high": high, "count": self.count, "method": self.method}
