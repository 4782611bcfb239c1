"""Find the tenant with most waiting requests: it is shed first when a queue is full."""

from collections import OrderedDict

from gateway.limits.queue.tenant import Tenant


class Crowd:
    """Tenants by how many requests of one class they have waiting. Counts move by one, so all is O(1)."""

    def __init__(self) -> None:
        self._counts: dict[Tenant, int] = {}
        self._by_count: list[OrderedDict[Tenant, None]] = [OrderedDict()]  # the last is never empty but for the first
        self.waiting = 0

    def of(self, tenant: Tenant) -> int:
        """Return how many a tenant has."""
        return self._counts.get(tenant, 0)

    def fullest(self) -> Tenant | None:
        """Return who has most, of several the one who has had the given number of for longest; `None` if nothing
        waits.
        """
        return next(iter(self._by_count[-1]), None)

    def add(self, tenant: Tenant) -> None:
        """Count one more."""
        had = self.of(tenant)
        self.waiting += 1
        if had:
            del self._by_count[had][tenant]
        if had + 1 == len(self._by_count):
            self._by_count.append(OrderedDict())
        self._by_count[had + 1][tenant] = None
        self._counts[tenant] = had + 1

    def remove(self, tenant: Tenant) -> None:
        """Count one less."""
        had = self._counts.pop(tenant)
        self.waiting -= 1
        del self._by_count[had][tenant]
        if had > 1:
            self._counts[tenant] = had - 1
            self._by_count[had - 1][tenant] = None
        while len(self._by_count) > 1 and not self._by_count[-1]:
            self._by_count.pop()
