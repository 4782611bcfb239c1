"""Records how long requests waited for a model to wake or load (a cold start)."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from backends.engine.base import EngineEvent
from contracts.engine.wire import Finished


@dataclass(slots=True)
class ColdRequests:
    """Waiting times of requests. Each method belongs to one thread, and never runs concurrently for the
    same request.
    """

    now_ns: Callable[[], int] = time.monotonic_ns
    _since_ns: dict[bytes, int] = field(default_factory=dict)
    _waited_ns: dict[bytes, int] = field(default_factory=dict)

    def wait(self, request_id: bytes) -> None:
        """Record that a request starts to wait."""
        self._since_ns[request_id] = self.now_ns()

    def served(self, request_id: bytes) -> None:
        """Record the end of a request's wait; do nothing if it did not wait."""
        since_ns = self._since_ns.pop(request_id, None)
        if since_ns is not None:
            self._waited_ns[request_id] = self.now_ns() - since_ns

    def told(self, events: Sequence[EngineEvent]) -> Sequence[EngineEvent]:
        """Return a step's events, with `cold_start_ns` set on the ends of requests that waited."""
        if not self._waited_ns:
            return events
        return [self._told(event) for event in events]

    def _told(self, event: EngineEvent) -> EngineEvent:
        waited_ns = self._waited_ns.pop(event.request_id, None) if isinstance(event, Finished) else None
        if waited_ns is None or not isinstance(event, Finished):
            return event
        return msgspec.structs.replace(event, cold_start_ns=waited_ns)
