"""One tenant in front of one pool: the service it has received, its waiting requests, and those in progress."""

import heapq
from typing import TYPE_CHECKING, Final

from contracts.rules.limits import PRIORITY_CLASSES
from gateway.limits.queue.request import QueuedRequest

if TYPE_CHECKING:
    from gateway.limits.queue.tenant_queue import Entry

LEVELS: Final = len(PRIORITY_CLASSES)


class Tenant:
    """A tenant's virtual token counter and its requests.

    `service` counts weighted tokens of all classes, divided by the tenant's weight. Tenants are compared at a level by
    `counter(level)`: the service plus the amount that was added to the tenant's counter at that level. A tenant without
    requests in one class gets no credit for it later, and keeps its credit in other classes.
    """

    __slots__ = ("id", "in_flight", "lifted", "service", "level_queues", "tokens_in_flight", "waiting")

    def __init__(self, name: str) -> None:
        self.id = name
        self.service = 0.0
        self.lifted = [0.0] * LEVELS
        self.in_flight = 0
        self.tokens_in_flight = 0
        self.waiting = 0
        self.level_queues: list[LevelQueue | None] = [None] * (2 * LEVELS)

    def counter(self, level: int) -> float:
        """Return the value by which the tenant is compared at a level."""
        return self.service + self.lifted[level]

    def lift(self, level: int, floor: float) -> None:
        """Raise the counter of a level to `floor`; never lower it."""
        if self.service + self.lifted[level] < floor:
            self.lifted[level] = floor - self.service

    def level_queue(self, level: int, is_long: bool) -> "LevelQueue":
        """Return the tenant's queue for a level, for long or for short prompts."""
        place = 2 * level + is_long
        found = self.level_queues[place]
        if found is None:
            found = self.level_queues[place] = LevelQueue(self, level, is_long)
        return found

    def waits_at(self, level: int, is_long: bool) -> bool:
        """Return whether a request of the tenant waits at a level, in the lane for long or for short prompts."""
        found = self.level_queues[2 * level + is_long]
        return found is not None and found.waiting > 0

    @property
    def is_idle(self) -> bool:
        """Return whether no request of the tenant waits or is in progress."""
        return not self.waiting and not self.in_flight


class LevelQueue:
    """A tenant's waiting requests of one level, oldest first. `entry` is its entry in the level's TenantQueue, if it is
    there.
    """

    __slots__ = ("_heap", "entry", "is_long", "level", "tenant", "waiting")

    def __init__(self, tenant: Tenant, level: int, is_long: bool) -> None:
        self.tenant = tenant
        self.level = level
        self.is_long = is_long
        self.waiting = 0
        self.entry: Entry | None = None
        self._heap: list[tuple[int, QueuedRequest]] = []

    def add(self, request: QueuedRequest) -> None:
        """Add a request in the order of arrival: an aged one may be older than those here."""
        self.waiting += 1
        heapq.heappush(self._heap, (request.sequence, request))

    def leave(self) -> None:
        """Record that one request has left this queue, at any position."""
        self.waiting -= 1
        if len(self._heap) > 2 * self.waiting + 8:
            self._heap = [pair for pair in self._heap if self._is_here(pair[1])]
            heapq.heapify(self._heap)

    def first(self) -> QueuedRequest | None:
        """Return the oldest request of this queue."""
        heap = self._heap
        while heap:
            if self._is_here(heap[0][1]):
                return heap[0][1]
            heapq.heappop(heap)
        return None

    def _is_here(self, request: QueuedRequest) -> bool:
        return request.state == "waiting" and request.level == self.level
