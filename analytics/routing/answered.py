"""Reads answers by target and prefix cache hits over time, both in one query."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from analytics.queries import query
from analytics.routing.use import Use, UseLine
from analytics.rows import number_of, text_of
from analytics.scope import Scope
from backends.store.client import Row, StoreClient

_MOST_LINES: Final = 5_000


@dataclass(frozen=True, slots=True)
class PrefixHits:
    """One pool in one time step. `share` is `None` if no input was reported."""

    step: datetime
    pool: str
    requests: int
    input_tokens: int
    cached_tokens: int

    @property
    def share(self) -> float | None:
        """Return the share of prompt tokens read from a cache, 0 to 1."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None


def read_answered(store: StoreClient, scope: Scope) -> tuple[tuple[UseLine, ...], tuple[PrefixHits, ...]]:
    """Read the use of targets in a scope, most used first, and prefix cache hits over time, without steps that have no
    request. Raises StoreUnavailable.
    """
    parameters = {"team": None, **scope.parameters(), "step": scope.step_seconds, "origin": scope.step_origin}
    lines: defaultdict[tuple[str, str, str, str], Use] = defaultdict(Use)
    hits: defaultdict[tuple[int, str], Use] = defaultdict(Use)
    for row in store.query(query(_question(scope)), parameters):
        pool, use = text_of(row["pool_label"]), _use(row)
        lines[pool, text_of(row["replica_label"]), text_of(row["model_label"]), text_of(row["route_label"])] += use
        hits[number_of(row["step_start"]), pool] += use
    ordered = sorted(lines.items(), key=lambda line: (-line[1].requests, line[0]))
    return (
        tuple(UseLine(*labels, use) for labels, use in ordered[:_MOST_LINES]),
        tuple(_hits(step, pool, use) for (step, pool), use in sorted(hits.items(), key=lambda one: one[0])),
    )


def _question(scope: Scope) -> str:
    """Return the query's name: hourly sums serve scopes of all tenants with whole hours or days."""
    is_of_all = scope.tenant is None and scope.team is None
    return "routing_answered_hours" if is_of_all and scope.grain != "minute" else "routing_answered"


def _use(row: Row) -> Use:
    return Use(
        number_of(row["request_count"]),
        number_of(row["error_count"]),
        number_of(row["retried_count"]),
        number_of(row["input_sum"]),
        number_of(row["cached_sum"]),
        number_of(row["ttft_count"]),
        number_of(row["ttft_sum"]),
    )


def _hits(step: int, pool: str, use: Use) -> PrefixHits:
    return PrefixHits(datetime.fromtimestamp(step, UTC), pool, use.requests, use.input_tokens, use.cached_tokens)
