"""Prefix cache hits of targets, by pool and over time."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class PrefixHits:
    """One pool in one step. `share` is `None` if no input was reported."""

    step: datetime
    pool: str
    requests: int
    input_tokens: int
    cached_tokens: int

    @property
    def share(self) -> float | None:
        """Return the share of prompt tokens that a cache had, 0 to 1."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None
