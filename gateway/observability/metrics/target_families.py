"""Metrics of targets, circuit breakers and retry budgets."""

from collections.abc import Iterator

from gateway.observability.metrics.exposition import Family
from gateway.routing.health.health_book import HealthBook


def target_families(book: HealthBook) -> Iterator[Family]:
    """Yield the metrics of targets, of providers with a playbook, and of pools."""
    targets, pools = list(book.targets), list(book.pools)
    yield Family(
        "tollkeeper_target_available",
        "gauge",
        "Whether a target is available: 0 while its circuit is open, it is paused or being probed.",
        [({"pool": one.pool.id, "target": one.id}, int(not one.is_away)) for one in targets],
    )
    yield Family(
        "tollkeeper_target_left_alone_total",
        "counter",
        "Times that a target's circuit opened after failures or slowness.",
        [({"pool": one.pool.id, "target": one.id}, one.breaker.opened) for one in targets if one.breaker is not None],
    )
    yield Family(
        "tollkeeper_target_ignores_max_tokens",
        "gauge",
        "Whether a target has made more tokens than max_tokens allowed, and has not honoured it since.",
        [({"pool": one.pool.id, "target": one.id}, int(one.ignores_limit)) for one in targets],
    )
    yield Family(
        "tollkeeper_provider_available",
        "gauge",
        "Whether a provider with a playbook is called.",
        [({"provider": name}, int(breaker.is_calm)) for name, breaker in book.providers.items()],
    )
    yield Family(
        "tollkeeper_retry_budget_spent_total",
        "counter",
        "Additional attempts that a pool's budget has borne.",
        [({"pool": pool.id}, pool.budget.spent) for pool in pools],
    )
    yield Family(
        "tollkeeper_retry_budget_refused_total",
        "counter",
        "Additional attempts that were not made for lack of budget.",
        [({"pool": pool.id}, pool.budget.refused) for pool in pools],
    )
    yield Family(
        "tollkeeper_hedges_total",
        "counter",
        "Requests asked of a second target, by whether that one answered.",
        [
            ({"pool": pool.id, "answered_by": which}, count)
            for pool in pools
            if pool.policy.hedge is not None
            for which, count in (("second", pool.hedges_won), ("first", pool.hedges_lost))
        ],
    )
