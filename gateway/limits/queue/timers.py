"""Requests by the time at which something is due for them; requests that have left meanwhile are skipped."""

import heapq
from collections.abc import Callable

from gateway.limits.queue.request import QueuedRequest


class Timers:
    """A heap of due times (ns). `is_due` returns whether a timer still concerns its request."""

    def __init__(self, is_due: Callable[[QueuedRequest, int], bool]) -> None:
        self._is_due = is_due
        self._heap: list[tuple[int, int, QueuedRequest]] = []
        self._compact_at = 64

    def set(self, due_ns: int, request: QueuedRequest) -> None:
        """Set a timer for a request."""
        heapq.heappush(self._heap, (due_ns, request.sequence, request))
        if len(self._heap) >= self._compact_at:
            self._heap = [alarm for alarm in self._heap if self._is_due(alarm[2], alarm[0])]
            heapq.heapify(self._heap)
            self._compact_at = 2 * len(self._heap) + 64

    def next_ns(self) -> int | None:
        """Return when the next timer is due."""
        heap = self._heap
        while heap and not self._is_due(heap[0][2], heap[0][0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now_ns: int) -> QueuedRequest | None:
        """Return a request whose timer is due, once per timer; `None` if no more are due."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            due_ns, _, request = heapq.heappop(heap)
            if self._is_due(request, due_ns):
                return request
        return None

    def clear(self) -> None:
        """Remove all timers."""
        self._heap = []
