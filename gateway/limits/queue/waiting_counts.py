"""Finds the tenant with the most waiting requests: it is shed first when a queue is full."""

from collections import OrderedDict

from gateway.limits.queue.tenant import Tenant


class WaitingCounts:
    """Tenants by their number of waiting requests of one class. Counts change by one, so all operations are O(1)."""

    def __init__(self) -> None:
        self._counts: dict[Tenant, int] = {}
        self._by_count: list[OrderedDict[Tenant, None]] = [OrderedDict()]  # only the first may be empty at the end
        self.waiting = 0

    def of(self, tenant: Tenant) -> int:
        """Return the number of a tenant's waiting requests."""
        return self._counts.get(tenant, 0)

    def fullest(self) -> Tenant | None:
        """Return the tenant with the most waiting requests, among equals the one that has had that number longest;
        `None` if nothing waits.
        """
        return next(iter(self._by_count[-1]), None)

    def add(self, tenant: Tenant) -> None:
        """Add one request."""
        had = self.of(tenant)
        self.waiting += 1
        if had:
            del self._by_count[had][tenant]
        if had + 1 == len(self._by_count):
            self._by_count.append(OrderedDict())
        self._by_count[had + 1][tenant] = None
        self._counts[tenant] = had + 1

    def remove(self, tenant: Tenant) -> None:
        """Remove one request."""
        had = self._counts.pop(tenant)
        self.waiting -= 1
        del self._by_count[had][tenant]
        if had > 1:
            self._counts[tenant] = had - 1
            self._by_count[had - 1][tenant] = None
        while len(self._by_count) > 1 and not self._by_count[-1]:
            self._by_count.pop()
