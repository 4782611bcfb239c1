"""One line per target: its share of its pool's requests, failures, and prefix cache hits."""

from collections import Counter
from dataclasses import dataclass

from analytics.routing.board import RoutingBoard
from analytics.routing.tries import failed_by_target
from analytics.routing.use import Use, by_target


@dataclass(frozen=True, slots=True)
class TargetLine:
    """A target in a scope. `pool_share` is of its pool's requests, 0 to 1.

    `failed_tries` counts failed attempts of requests with several attempts, the last one included; a request whose only
    attempt failed is in `use.errors`. `commonest_error` is empty without failures.
    """

    pool: str
    target: str
    use: Use
    pool_share: float | None
    failed_tries: int
    commonest_error: str


def target_lines(board: RoutingBoard) -> tuple[TargetLine, ...]:
    """Return all targets that answered or failed, by pool, most requests first.

    Requests without a target have an empty target.
    """
    uses, failed = by_target(board.lines), failed_by_target(board.tries)
    pools: Counter[str] = Counter()
    for (pool, _), use in uses.items():
        pools[pool] += use.requests
    lines = []
    for pool, target in {**uses, **failed}:
        use, errors = uses.get((pool, target), Use()), failed.get((pool, target), Counter())
        lines.append(
            TargetLine(
                pool,
                target,
                use,
                use.requests / pools[pool] if pools[pool] else None,
                errors.total(),
                errors.most_common(1)[0][0] if errors else "",
            )
        )
    return tuple(sorted(lines, key=lambda one: (one.pool, -one.use.requests, one.target)))
