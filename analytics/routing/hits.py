"""How much of prompts was found in targets' caches, by pool and over time."""

from dataclasses import dataclass
from datetime import UTC, datetime

from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Scope
from backends.store.client import StoreClient


@dataclass(frozen=True, slots=True)
class PrefixHits:
    """One pool in one step. `share` is `None` where no input was reported."""

    step: datetime
    pool: str
    requests: int
    input_tokens: int
    cached_tokens: int

    @property
    def share(self) -> float | None:
        """Give the share of prompt tokens that a cache had, 0 to 1."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None


def prefix_hits(store: StoreClient, scope: Scope) -> tuple[PrefixHits, ...]:
    """Read prefix hits over time, in order; steps without a request are left out. Raises StoreUnavailable."""
    parameters = {"team": None, **scope.parameters(), "step": scope.step_seconds, "origin": scope.step_origin}
    return tuple(
        PrefixHits(
            datetime.fromtimestamp(number_of(row["step_start"]), UTC),
            text_of(row["pool_label"]),
            number_of(row["request_count"]),
            number_of(row["input_sum"]),
            number_of(row["cached_sum"]),
        )
        for row in store.query(query("routing_steps"), parameters)
    )
