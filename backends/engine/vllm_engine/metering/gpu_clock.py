"""Where a step lies in time, from pooled GPU events that are never waited for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

# A stream that stood still for longer than this had run dry: what came next began when it was launched.
DRAINED_NS: Final = 20_000
_SURELY_DRAINED_NS: Final = 500_000  # beyond what the two clocks can disagree by: not worth asking the GPU
_NS_PER_MS: Final = 1_000_000


class GpuEvent(Protocol):
    """A CUDA event that takes the time."""

    def record(self, stream: Any = None, /) -> Any:
        """Put the event into a stream, `None`: the current one."""

    def query(self) -> bool:
        """Say whether the stream has passed it."""

    def elapsed_time(self, later: Any, /) -> float:
        """Give the milliseconds from this to a later event; both must have passed."""


@dataclass(slots=True)
class StepEvents:
    """The events of one step: before its forward pass, after it, after sampling."""

    first: GpuEvent
    middle: GpuEvent
    last: GpuEvent


class EventPool:
    """Events made once and used in turn. `take` gives `None` while all are in use: the step then goes unmeasured."""

    def __init__(self, make: Callable[[], GpuEvent], size: int) -> None:
        self._free = [StepEvents(make(), make(), make()) for _ in range(size)]

    def take(self) -> StepEvents | None:
        """Give events for a step."""
        return self._free.pop() if self._free else None

    def give_back(self, events: StepEvents) -> None:
        """Take events back whose times have been read."""
        self._free.append(events)


@dataclass(slots=True)
class StepTimes:
    """When a step began, by the host's monotonic clock, and for how long it and its forward pass were busy."""

    started_ns: int
    busy_ns: int
    forward_ns: int | None


class GpuClock:
    """Maps the steps of one stream, in order, from GPU time to the host's clock.

    Durations are the GPU's own. A step on a dry stream begins when it was launched; one behind another begins the
    measured gap after that one's end. Both clocks drift apart by parts per million, so what the host knows bounds
    the mapping at each step: none began before its launch, and each had ended when its last event was seen.
    """

    def __init__(self, pool: EventPool) -> None:
        self._pool = pool
        self._previous: StepEvents | None = None
        self._ended_ns = 0

    def place(self, events: StepEvents, launched_ns: int, seen_ns: int, *, has_forward: bool) -> StepTimes:
        """Give a finished step's times; its events go back to the pool once the next step's have been read."""
        busy_ns = round(events.first.elapsed_time(events.last) * _NS_PER_MS)
        forward_ns = round(events.first.elapsed_time(events.middle) * _NS_PER_MS) if has_forward else None
        started_ns = launched_ns
        if self._previous is not None:
            if launched_ns - self._ended_ns < _SURELY_DRAINED_NS:
                gap_ns = round(self._previous.last.elapsed_time(events.first) * _NS_PER_MS)
                if gap_ns <= DRAINED_NS:
                    started_ns = self._ended_ns + max(0, gap_ns)
            self._pool.give_back(self._previous)
        started_ns = min(max(started_ns, launched_ns), seen_ns - busy_ns)
        started_ns = max(started_ns, self._ended_ns)
        self._previous = events
        self._ended_ns = started_ns + busy_ns
        return StepTimes(started_ns, busy_ns, forward_ns)
