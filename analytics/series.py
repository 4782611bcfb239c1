"""Requests, tokens and cost over time by tenant or model, for the overview's charts."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, Literal

from analytics.queries import query
from analytics.rows import money_of, number_of, text_of
from analytics.scope import Period, Scope
from backends.store.client import Row, StoreClient

Dimension = Literal["tenant", "model"]
AnyDimension = Literal["tenant", "team", "project", "model"]  # of sums

MAX_LEADERS: Final = 8  # as more colours cannot be distinguished; the rest is one group


@dataclass(frozen=True, slots=True)
class Point:
    """One group in one time step. Sums exclude unreported and unpriced usage.

    `unpriced`, `unknown_usage` and `failed` count requests without an amount, by reason. `priced_tokens` are the tokens
    that the cost covers, `None` if unknown.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    unpriced: int = 0
    unknown_usage: int = 0
    failed: int = 0
    priced_tokens: int | None = 0

    @property
    def without_price(self) -> int:
        """Return the number of requests with usage and without an amount."""
        return self.unpriced + self.unknown_usage


@dataclass(frozen=True, slots=True)
class Series:
    """Points by group, one per entry of `steps` (starts, UTC); zeros for steps without requests.

    A group is a value of the dimension; `None`: all but the eight of highest cost. `partial` are the indices of steps
    that the range covers only in part, whose sums are not comparable.
    """

    dimension: AnyDimension
    step: timedelta
    steps: tuple[datetime, ...]
    groups: Mapping[str | None, tuple[Point, ...]]
    partial: frozenset[int]


def series(store: StoreClient, scope: Scope, by: AnyDimension) -> Series:
    """Return the scope's requests, tokens and cost over time. Raises StoreUnavailable."""
    step, origin, covered = scope.step_seconds, scope.step_origin, scope.covered
    parameters = {
        **scope.parameters(),
        "rollup": scope.series_rollup(by),
        "dimension": by,
        "step": step,
        "origin": origin,
        "leader_limit": MAX_LEADERS,
    }
    first = (covered.start_s - origin) // step * step + origin
    starts = range(first, covered.end_s, step)
    found: dict[str | None, dict[int, Point]] = {}
    for row in store.query(query("series"), parameters):
        group = None if number_of(row["is_rest"]) else text_of(row["label"])
        found.setdefault(group, {})[number_of(row["step_start"])] = Point(
            requests=number_of(row["request_count"]),
            input_tokens=number_of(row["input_sum"]),
            output_tokens=number_of(row["output_sum"]),
            cost_usd=money_of(row["cost_sum"]),
            unpriced=number_of(row["unpriced_count"]),
            unknown_usage=number_of(row["unknown_usage_count"]),
            failed=number_of(row["failed_count"]),
            priced_tokens=_priced_tokens(row),
        )
    nothing = Point()
    return Series(
        dimension=by,
        step=timedelta(seconds=step),
        steps=tuple(datetime.fromtimestamp(start, UTC) for start in starts),
        groups={group: tuple(points.get(start, nothing) for start in starts) for group, points in found.items()},
        partial=_partial(starts, covered, scope.end),
    )


def _priced_tokens(row: Row) -> int | None:
    if number_of(row["untold_count"]):
        return None
    tokens = number_of(row["input_sum"]) + number_of(row["output_sum"])
    return tokens - number_of(row["unpriced_input_sum"]) - number_of(row["unpriced_output_sum"])


def _partial(starts: range, covered: Period, end: datetime) -> frozenset[int]:
    return frozenset(
        index
        for index, start in enumerate(starts)
        if start < covered.start_s or start + starts.step > min(covered.end_s, end.timestamp())
    )
