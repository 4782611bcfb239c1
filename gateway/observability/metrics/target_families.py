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
        "Whether a target has exceeded max_tokens, and has not honoured it since.",
        [({"pool": one.pool.id, "target": one.id}, int(one.ignores_limit)) for one in targets],
    )
    yield Family(
        "tollkeeper_provider_available",
        "gauge",
        "Whether a provider with a playbook is in use: 0 during an outage.",
        [({"provider": name}, int(breaker.is_calm)) for name, breaker in book.providers.items()],
    )
    yield Family(
        "tollkeeper_retry_budget_spent_total",
        "counter",
        "Additional attempts charged to a pool's retry budget.",
        [({"pool": pool.id}, pool.budget.spent) for pool in pools],
    )
    yield Family(
        "tollkeeper_retry_budget_refused_total",
        "counter",
        "Additional attempts refused by a pool's retry budget.",
        [({"pool": pool.id}, pool.budget.refused) for pool in pools],
    )
    yield Family(
        "tollkeeper_hedges_total",
        "counter",
        "Hedged requests, by whether the second target answered.",
        [
            ({"pool": pool.id, "answered_by": which}, count)
            for pool in pools
            if pool.policy.hedge is not None
            for which, count in (("second", pool.hedges_won), ("first", pool.hedges_lost))
        ],
    )
