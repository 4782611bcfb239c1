"""A value with its confidence interval: the result of comparisons."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """A value, the bounds of its 95 % confidence interval, and the number of observations."""

    value: float
    low: float
    high: float
    count: int
    method: str

    def as_json(self) -> dict[str, object]:
        """Return the values as JSON types; a bound that is unknown (one observation) is `None`."""
        low, high = (end if math.isfinite(end) else None for end in (self.low, self.high))
        return {"value": self.value, "low": low, "high": high, "count": self.count, "method": self.method}
