"""Attempts beyond the first (retries, fallbacks, hedges, resumed answers), and the failures before them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from analytics.queries import query
from analytics.rows import money_of, number_of, text_of
from analytics.scope import Scope
from backends.store.client import StoreClient

_MOST_LINES: Final = 20_000
FIRST: Final = "first"  # the reason of a first attempt


@dataclass(frozen=True, slots=True)
class Tries:
    """Attempts of one kind in one time step. Only requests with more than one attempt are included.

    `cost_usd` is the sum of known costs at targets.
    """

    step: datetime
    pool: str
    target: str
    reason: str
    outcome: str
    error_code: str
    count: int
    cost_usd: Decimal

    @property
    def has_failed(self) -> bool:
        """Return whether the target failed; a hedge's losing attempt and a disconnected client are not failures."""
        return self.outcome == "error"


def read_tries(store: StoreClient, scope: Scope) -> tuple[Tries, ...]:
    """Read the attempts of requests that had more than one, by time step of the charts. Raises StoreUnavailable."""
    parameters = {
        "team": None,
        **scope.parameters(),
        "step": scope.step_seconds,
        "origin": scope.step_origin,
        "row_limit": _MOST_LINES,
    }
    return tuple(
        Tries(
            datetime.fromtimestamp(number_of(row["step_start"]), UTC),
            text_of(row["pool_label"]),
            text_of(row["replica_label"]),
            text_of(row["reason_label"]),
            text_of(row["outcome_label"]),
            text_of(row["error_label"]),
            number_of(row["try_count"]),
            money_of(row["cost_sum"]),
        )
        for row in store.query(query("routing_tries"), parameters)
    )


def further_by_reason(tries: Iterable[Tries]) -> dict[str, int]:
    """Count attempts beyond the first by reason, most frequent first."""
    found: Counter[str] = Counter()
    for one in tries:
        if one.reason != FIRST:
            found[one.reason] += one.count
    return dict(found.most_common())


def failed_by_target(tries: Iterable[Tries]) -> dict[tuple[str, str], Counter[str]]:
    """Return counts of failed attempts by pool and target, and within these by error code."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for one in tries:
        if one.has_failed:
            found.setdefault((one.pool, one.target), Counter())[one.error_code] += one.count
    return found


def failed_by_step(tries: Iterable[Tries]) -> dict[tuple[str, str], dict[datetime, int]]:
    """Return counts of failed attempts by pool and target, and within these by time step."""
    found: dict[tuple[str, str], dict[datetime, int]] = {}
    for one in tries:
        if one.has_failed:
            steps = found.setdefault((one.pool, one.target), {})
            steps[one.step] = steps.get(one.step, 0) + one.count
    return found


def lost_usd(tries: Iterable[Tries]) -> Decimal:
    """Return the known cost of attempts whose answer reached no client."""
    return sum((one.cost_usd for one in tries if one.outcome != "ok"), Decimal(0))
