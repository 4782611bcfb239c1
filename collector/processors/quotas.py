"""Tenants' quotas for third-party telemetry. Gateways' packed records are exempt."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from collector.arrival import Arrival
from collector.counters import Counters
from collector.processors.attributes import tenant_in
from contracts.errors import LimitExceeded

UNKNOWN_TENANT: Final = "unknown_tenant"
TENANT_QUOTA: Final = "tenant_quota"
_BURST_SECONDS: Final = 10.0
_MAX_TENANTS: Final = 10_000  # tenants with their own count; beyond it the least recent are removed
_MAX_SHOWN: Final = 80


class KnownTenants:
    """Refuses telemetry of tenants that are not listed. An empty list allows all."""

    def __init__(self, tenants: Collection[str], counters: Counters) -> None:
        self._tenants = frozenset(tenants)
        self._counters = counters

    def admit(self, arrival: Arrival) -> None:
        """Remove the parts of unknown tenants. Telemetry without a tenant passes: it belongs to the operator."""
        if not self._tenants:
            return
        for part in arrival.parts:
            tenant = tenant_of(part)
            if tenant and tenant not in self._tenants:
                reason = f"tenant {tenant[:_MAX_SHOWN]!r} is not known here (TOLLKEEPER_COLLECTOR_TENANTS)"
                taken = arrival.refuse(part, UNKNOWN_TENANT, reason)
                self._counters.rejected(UNKNOWN_TENANT, taken)


class TenantQuotas:
    """Limits each tenant's third-party records per second, averaged over ten seconds. Thread-safe.

    A request is accepted whole if the tenant has any quota left; the excess is deducted from its later quota. So a
    single request may be larger than the quota.
    """

    def __init__(
        self,
        per_second: float,
        by_tenant: Mapping[str, float],
        counters: Counters,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the quotas in records per second: `per_second` for tenants not in `by_tenant`; 0 means no limit."""
        self._per_second = per_second
        self._by_tenant = dict(by_tenant)
        self._counters = counters
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # Remaining records, and the time of that value
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admit(self, arrival: Arrival) -> None:
        """Charge each part's tenant and remove parts beyond its quota. Raises LimitExceeded if no part is left."""
        if not self._per_second and not self._by_tenant:
            return
        refused: list[tuple[Any, str, float]] = []
        admitted = 0
        for part in arrival.parts:
            records = arrival.processor.foreign_records(part)
            wait = self._charge(tenant_of(part), records) if records else 0.0
            if wait:
                refused.append((part, tenant_of(part), wait))
            elif records:
                admitted += 1
        if refused and not admitted and not arrival.rejected and _nothing_is_ours(arrival):
            wait = max(one[2] for one in refused)
            tenant = refused[0][1]
            self._counters.noticed(TENANT_QUOTA, len(refused), tenant=tenant)
            raise LimitExceeded(
                f"{_quota_text(tenant, self._limit(tenant))}; send this batch again",
                code=TENANT_QUOTA,
                retry_after_seconds=wait,
            )
        for part, tenant, _ in refused:
            taken = arrival.refuse(part, TENANT_QUOTA, _quota_text(tenant, self._limit(tenant)))
            self._counters.rejected(TENANT_QUOTA, taken, tenant=tenant)

    def _charge(self, tenant: str, records: int) -> float:
        """Charge a tenant and return 0; if it has no quota left, return the seconds until it may send again."""
        limit = self._limit(tenant)
        if not limit:
            return 0.0
        now = self._monotonic()
        with self._lock:
            left, then = self._levels.pop(tenant, (limit * _BURST_SECONDS, now))
            left = min(left + (now - then) * limit, limit * _BURST_SECONDS)
            may_send = left > 0
            self._levels[tenant] = (left - records if may_send else left, now)
            if len(self._levels) > _MAX_TENANTS:
                self._levels.popitem(last=False)
        return 0.0 if may_send else max(-left / limit, 1 / limit)

    def _limit(self, tenant: str) -> float:
        return self._by_tenant.get(tenant, self._per_second)


def tenant_of(part: Any) -> str:
    """Return the tenant that a part's resource names; "" if it names none."""
    return tenant_in(part.resource.attributes)


def _quota_text(tenant: str, limit: float) -> str:
    return f"tenant {tenant[:_MAX_SHOWN]!r} has sent more than its {limit:g} records per second"


def _nothing_is_ours(arrival: Arrival) -> bool:
    processor = arrival.processor
    return not any(processor.is_ours(record) for part in arrival.parts for record in processor.records_of(part))
