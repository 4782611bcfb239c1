"""Chooses requests to shed: from a full queue the lowest class, and requests past their class's deadline."""

from collections import OrderedDict
from typing import Final

from contracts.rules.limits import PRIORITY_CLASSES, QueueSpec
from gateway.limits.queue.request import RANKS, QueuedRequest
from gateway.limits.queue.tenant import LEVELS, Tenant
from gateway.limits.queue.timers import Timers
from gateway.limits.queue.waiting_counts import WaitingCounts

_SECOND_NS: Final = 1_000_000_000


class ShedOrder:
    """Waiting requests indexed by requested class, tenant and arrival, to find the ones to shed."""

    def __init__(self, spec: QueueSpec) -> None:
        self._waiting_counts = [WaitingCounts() for _ in range(LEVELS)]
        self._newest: list[dict[Tenant, OrderedDict[int, QueuedRequest]]] = [{} for _ in range(LEVELS)]
        self._deadlines = Timers(lambda one, due_ns: one.state == "waiting" and self._deadline_ns(one) == due_ns)
        self.adopt(spec)

    def adopt(self, spec: QueueSpec) -> None:
        """Adopt another spec: deadlines are computed again from each request's arrival."""
        self._deadline_by_rank = {RANKS[name]: int(value * _SECOND_NS) for name, value in spec.deadline_seconds.items()}
        self._deadlines.clear()
        for request in self.requests():
            self._set_alarm(request)

    def requests(self) -> list[QueuedRequest]:
        """Return all waiting requests."""
        return [one for tenants in self._newest for requests in tenants.values() for one in requests.values()]

    def by_tenant(self) -> dict[Tenant, list[QueuedRequest]]:
        """Return all waiting requests by tenant."""
        found: dict[Tenant, list[QueuedRequest]] = {}
        for tenants in self._newest:
            for tenant, requests in tenants.items():
                found.setdefault(tenant, []).extend(requests.values())
        return found

    def add(self, request: QueuedRequest, tenant: Tenant) -> None:
        """Add a request that starts to wait."""
        self._newest[request.rank].setdefault(tenant, OrderedDict())[request.sequence] = request
        self._waiting_counts[request.rank].add(tenant)
        self._set_alarm(request)

    def remove(self, request: QueuedRequest, tenant: Tenant) -> None:
        """Remove a request that waits no more."""
        requests = self._newest[request.rank][tenant]
        del requests[request.sequence]
        if not requests:
            del self._newest[request.rank][tenant]
        self._waiting_counts[request.rank].remove(tenant)

    def who_gives_way(self, newcomer: QueuedRequest, tenant: Tenant) -> QueuedRequest:
        """Return the request that a full queue sheds: the new one itself, or a waiting one."""
        rank = next((one for one in reversed(range(LEVELS)) if self._waiting_counts[one].waiting), newcomer.rank)
        if rank < newcomer.rank:
            return newcomer
        counts = self._waiting_counts[rank]
        fullest = counts.fullest()
        # Within its own class, a new request displaces only one of a tenant that has more waiting even after that.
        if fullest is None or (rank == newcomer.rank and counts.of(fullest) <= counts.of(tenant) + 1):
            return newcomer
        requests = self._newest[rank][fullest]
        return requests[next(reversed(requests))]

    def pop_late(self, now_ns: int) -> QueuedRequest | None:
        """Return a request whose deadline has passed, each once; `None` if there are no more."""
        return self._deadlines.pop(now_ns)

    @property
    def next_deadline_ns(self) -> int | None:
        """Return when the next deadline passes."""
        return self._deadlines.next_ns()

    @property
    def backlogged_tenants(self) -> int:
        """Return the number of tenants with waiting requests."""
        return len(set().union(*self._newest))

    def waiting_ahead_of(self, rank: int) -> int:
        """Count the waiting requests of a class and of better ones."""
        return sum(counts.waiting for counts in self._waiting_counts[: rank + 1])

    def waiting_by_class(self) -> dict[str, int]:
        """Count the waiting requests by class."""
        return {name: counts.waiting for name, counts in zip(PRIORITY_CLASSES, self._waiting_counts, strict=True)}

    def _set_alarm(self, request: QueuedRequest) -> None:
        due_ns = self._deadline_ns(request)
        if due_ns is not None:
            self._deadlines.set(due_ns, request)

    def _deadline_ns(self, request: QueuedRequest) -> int | None:
        """Return the time at which a request has waited longer than its deadline."""
        allowed_ns = self._deadline_by_rank.get(request.rank)
        return None if allowed_ns is None else request.arrived_ns + allowed_ns + 1
