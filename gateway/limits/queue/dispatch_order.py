"""Chooses the next request: queues by level, priority ageing, and requests that do not fit.

A tenant's claim is relative to the tenants that it waits with. Otherwise a tenant could gather a claim while it waits
for the lane of long prompts, or behind better classes, and spend it all at once on tenants that never made it wait.
"""

from collections.abc import Iterable
from math import isfinite
from typing import Final

from contracts.rules.limits import QueueSpec
from gateway.limits.queue.pool_load import PoolLoad
from gateway.limits.queue.request import QueuedRequest
from gateway.limits.queue.sizes import largest_within, rounded_up
from gateway.limits.queue.tenant import LEVELS, LevelQueue, Tenant
from gateway.limits.queue.tenant_queue import TenantQueue
from gateway.limits.queue.timers import Timers

_SECOND_NS: Final = 1_000_000_000


class DispatchOrder:
    """The waiting requests in the order in which they are to be dispatched."""

    def __init__(self, spec: QueueSpec, load: PoolLoad) -> None:
        self._load = load
        self._last_left: list[Tenant | None] = [None] * LEVELS
        self._promotions = Timers(lambda one, due_ns: one.state == "waiting" and self._promotion_ns(one) == due_ns)
        self.adopt(spec)

    def adopt(self, spec: QueueSpec) -> None:
        """Adopt another spec; waiting requests must be placed again by `add_again`."""
        self._ageing_ns = int(spec.ageing_seconds * _SECOND_NS) if isfinite(spec.ageing_seconds) else None
        self._output_weight = spec.output_weight
        self._token_weight = max(spec.input_weight, spec.output_weight)
        self._promotions.clear()
        self._lines = [(TenantQueue(), TenantQueue()) for _ in range(LEVELS)]  # of short prompts, of long prompts

    def add(self, request: QueuedRequest, tenant: Tenant) -> None:
        """Add a waiting request. If its tenant had none at that level, the tenant's counter is raised to the level's
        floor.
        """
        self._enter(request, tenant)
        self._set_alarm(request)

    def add_again(self, tenant: Tenant, requests: Iterable[QueuedRequest]) -> None:
        """Place all waiting requests of a tenant again after the spec has changed. No counter is raised."""
        tenant.level_queues = [None] * len(tenant.level_queues)
        for request in requests:
            request.is_long = self._load.is_long(request)
            tenant.level_queue(request.level, request.is_long).add(request)
            self._set_alarm(request)
        self.stand(tenant)

    def remove(self, request: QueuedRequest, tenant: Tenant) -> None:
        """Remove a request that waits no more."""
        level_queue = tenant.level_queue(request.level, request.is_long)
        level_queue.leave()
        self._stand(level_queue)
        if not (tenant.waits_at(request.level, False) or tenant.waits_at(request.level, True)):
            self._last_left[request.level] = tenant

    def lift(self, level: int, tenant: Tenant) -> None:
        """Raise a tenant's counter to the level's floor, for a request that is dispatched without waiting. Does nothing
        if other requests wait.
        """
        last = self._last_left[level]
        if last is not tenant:
            if last is not None:
                tenant.lift(level, last.service + last.lifted[level])
            self._last_left[level] = tenant

    def stand(self, tenant: Tenant) -> None:
        """Update a tenant's position after its counter has fallen or its share of the pool has changed."""
        for level_queue in tenant.level_queues:
            if level_queue is not None and level_queue.waiting:
                self._stand(level_queue)

    def age(self, now_ns: int) -> None:
        """Raise the requests that have waited long enough by a level."""
        while (request := self._promotions.pop(now_ns)) is not None:
            tenant = request.tenant
            below = tenant.level_queue(request.level, request.is_long)
            request.level -= 1
            below.leave()
            self._stand(below)
            self._enter(request, tenant)
            self._set_alarm(request)

    def choose(self) -> QueuedRequest | None:
        """Return the next request among those that fit; `None` if none fits or room is held for the first in line."""
        free = self._load.free_tokens
        first = self._best(None)
        if first is None or free is None or rounded_up(first.reserved_tokens) <= free:
            return first
        assert self._load.max_tokens is not None, "without a bound everything fits"
        if first.passed_tokens >= self._load.max_tokens:
            return None
        fitting = self._best(largest_within(free))
        if fitting is None or not self._may_pass(fitting):
            return None
        first.passed_tokens += fitting.reserved_tokens
        return fitting

    def _may_pass(self, request: QueuedRequest) -> bool:
        """Return whether a tenant stays within VTC's bound if everything that it then has in flight is used up.

        The bound is a pool full of output: how far the tenant with the smallest counter may get ahead in its turn.
        """
        level, tenant = request.level, request.tenant
        first = self._best_at(level, None)
        if first is None or first.tenant is tenant:
            return True
        assert self._load.max_tokens is not None, "without a bound everything fits"
        ahead = (tenant.counter(level) - first.tenant.counter(level)) * request.weight
        may_use = self._token_weight * (tenant.tokens_in_flight + request.reserved_tokens)
        return ahead + may_use <= self._output_weight * self._load.max_tokens

    def floor(self, level: int, *, is_long: bool = False) -> float | None:
        """Return the smallest counter among the tenants of a level that may be dispatched next; if there are none, the
        counter of the tenant that left last.
        """
        short, long = self._lines[level]
        is_open = self._load.is_lane_open
        found = [one for one in (short.best(), long.best() if is_open else None) if one is not None]
        if not found and is_long and not is_open:
            found = [one for one in (long.best(),) if one is not None]
        if found:
            return min(one.tenant.counter(level) for one in found)
        last = self._last_left[level]
        return None if last is None else last.counter(level)

    def forget_all(self) -> None:
        """Forget tenants that have left; nothing may be waiting."""
        self._last_left = [None] * LEVELS

    def _best(self, largest: int | None) -> QueuedRequest | None:
        """Return the first request of the highest level that has any, of these size classes."""
        for level in range(LEVELS):
            best = self._best_at(level, largest)
            if best is not None:
                return best.first()
        return None

    def _best_at(self, level: int, largest: int | None) -> LevelQueue | None:
        short, long = self._lines[level]
        best = short.best(largest) if short.members else None
        if long.members and self._load.is_lane_open:
            other = long.best(largest)
            if other is not None and (best is None or _key(other) < _key(best)):
                return other
        return best

    def _enter(self, request: QueuedRequest, tenant: Tenant) -> None:
        level, is_long = request.level, request.is_long
        if not (tenant.waits_at(level, False) or (is_long and tenant.waits_at(level, True))):
            floor = self.floor(level, is_long=is_long)
            if floor is not None:
                tenant.lift(level, floor)
                self.stand(tenant)
        level_queue = tenant.level_queue(level, is_long)
        level_queue.add(request)
        self._stand(level_queue)

    def _stand(self, level_queue: LevelQueue) -> None:
        """Place a tenant in a line by its first request there; remove it if it has none or is at its cap."""
        line = self._lines[level_queue.level][level_queue.is_long]
        first = level_queue.first()
        if first is None or (self._load.has_caps and self._load.is_capped(level_queue.tenant, first)):
            line.remove(level_queue)
        else:
            line.put(level_queue, first.sequence, first.reserved_tokens)

    def _set_alarm(self, request: QueuedRequest) -> None:
        due_ns = self._promotion_ns(request)
        if due_ns is not None:
            self._promotions.set(due_ns, request)

    def _promotion_ns(self, request: QueuedRequest) -> int | None:
        if not request.level or self._ageing_ns is None:
            return None
        return request.arrived_ns + (request.rank - request.level + 1) * self._ageing_ns


def _key(level_queue: LevelQueue) -> tuple[float, int]:
    entry = level_queue.entry
    assert entry is not None, "a level queue found in a line has an entry there"
    return entry[:2]
