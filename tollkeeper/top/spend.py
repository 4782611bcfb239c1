"""Reads spending by tenant, today and this month, from the store."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from analytics.cost.periods import month_of
from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.cost.sums import CostSum, total_of
from backends.store.client import StoreClient

_UTC: Final = ZoneInfo("UTC")

SpendReader = Callable[[], "tuple[TenantSpend, ...]"]


@dataclass(frozen=True, slots=True)
class TenantSpend:
    """One tenant's usage and cost today and this month (UTC). A cost is `None` if nothing has a price."""

    tenant: str
    requests_today: int
    tokens_today: int
    usd_today: Decimal | None
    usd_month: Decimal | None
    unpriced_month: int
    unknown_usage_month: int = 0
    failed_month: int = 0


def spend_by_tenant(store: StoreClient, now: datetime) -> tuple[TenantSpend, ...]:
    """Return the spending of all tenants this month, highest first. Raises StoreUnavailable."""
    month = month_of(now.year, now.month, _UTC)
    until = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    report = cost_report(store, CostQuestion(month.start, until, ("tenant",), "day", asked_at=now))
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    by_tenant: dict[str, list[tuple[datetime, CostSum]]] = {}
    for line in report.lines:
        by_tenant.setdefault(line.path[0], []).append((line.period.start, line.sums))
    found = [_spend(tenant, days, today) for tenant, days in by_tenant.items()]
    return tuple(sorted(found, key=lambda one: (-(one.usd_month or 0), one.tenant)))


def _spend(tenant: str, days: list[tuple[datetime, CostSum]], today: datetime) -> TenantSpend:
    month = total_of(sums for _, sums in days)
    day = total_of(sums for start, sums in days if start >= today)
    return TenantSpend(
        tenant,
        requests_today=day.requests,
        tokens_today=day.input_tokens + day.output_tokens,
        usd_today=day.cost_usd,
        usd_month=month.cost_usd,
        unpriced_month=month.unpriced_requests + month.partly_unpriced_requests,
        unknown_usage_month=month.unknown_usage_requests,
        failed_month=month.failed_requests,
    )
