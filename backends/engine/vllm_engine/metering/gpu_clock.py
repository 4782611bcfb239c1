"""Time GPU steps with pooled CUDA events, without synchronising."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

# A stream that stood still for longer than this had run dry: what came next began when it was launched.
DRAINED_NS: Final = 20_000
_SURELY_DRAINED_NS: Final = 500_000  # beyond what the two clocks can disagree by: not worth asking the GPU
_DRIFT: Final = 10_000  # a ten-thousandth: clocks drift apart by less. An anchor that says more was launched late
_NS_PER_MS: Final = 1_000_000


class GpuEvent(Protocol):
    """A CUDA event that takes the time."""

    def record(self, stream: Any = None, /) -> Any:
        """Put the event into a stream, `None`: the current one."""

    def query(self) -> bool:
        """Return whether the stream has passed it."""

    def elapsed_time(self, later: Any, /) -> float:
        """Return the milliseconds from this to a later event; both must have passed."""


class ReadRing(Protocol):
    """A ring of steps that each have an event at their end alone; see quick_way.StepRing."""

    def read(
        self, before: GpuEvent, ended_ns: int, seen_ns: int, most: int, /
    ) -> tuple[list[int], GpuEvent | None, int]:
        """Place the next steps that have finished, as GpuClock.follow does: beginnings and lengths, the event at the
        end of the last, and when that was. It stays in use until the next call."""

    def free(self) -> None:
        """Let that event be used again."""


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
        """Return events for a step."""
        return self._free.pop() if self._free else None

    def give_back(self, events: StepEvents) -> None:
        """Withdraw events whose times have been read."""
        self._free.append(events)


@dataclass(slots=True)
class StepTimes:
    """When a step began, by the host's monotonic clock, and for how long it and its forward pass were busy."""

    started_ns: int
    busy_ns: int
    forward_ns: int | None


class GpuClock:
    """Maps the steps of one stream, in order, from GPU time to the host's clock.

    A step on a dry stream begins when it was launched; one behind another begins the measured gap after that one's
    end. Both clocks drift apart by parts per million, so what the host knows bounds the mapping at each step: none
    began before its launch, and each had ended when its last event was seen.

    A step with its first event is an anchor (`place`): its duration is the GPU's own. Between anchors one event a step
    is enough (`follow`): its end lies as long after the last one's as the GPU says, and it began when it was launched
    or when that one ended, whatever came later.
    """

    def __init__(self, pool: EventPool, ring: ReadRing | None = None) -> None:
        self._pool = pool
        self._ring = ring
        self._previous: GpuEvent | None = None  # at the end of the last step
        self._held: StepEvents | None = None  # of the pool, whose event that is
        self._ended_ns = 0
        self._anchored_ns = 0

    def place(self, events: StepEvents, launched_ns: int, seen_ns: int, *, has_forward: bool) -> StepTimes:
        """Return a finished step's times; its events go back to the pool once the next step's have been read."""
        busy_ns = round(events.first.elapsed_time(events.last) * _NS_PER_MS)
        forward_ns = round(events.first.elapsed_time(events.middle) * _NS_PER_MS) if has_forward else None
        started_ns = launched_ns
        if self._previous is not None:
            if launched_ns - self._ended_ns < _SURELY_DRAINED_NS:
                gap_ns = round(self._previous.elapsed_time(events.first) * _NS_PER_MS)
                chained_ns = self._ended_ns + max(0, gap_ns)
                if gap_ns <= DRAINED_NS:
                    started_ns = chained_ns
                else:  # a launch that the host was kept from must not move the ends chained to it
                    started_ns = max(launched_ns, chained_ns - (launched_ns - self._anchored_ns) // _DRIFT)
        self._let_go()
        self._anchored_ns = launched_ns
        started_ns = min(max(started_ns, launched_ns), seen_ns - busy_ns)
        started_ns = max(started_ns, self._ended_ns)
        self._previous, self._held = events.last, events
        self._ended_ns = started_ns + busy_ns
        return StepTimes(started_ns, busy_ns, forward_ns)

    def follow(self, events: StepEvents, launched_ns: int, seen_ns: int) -> tuple[int, int]:
        """Return when a finished step without its first event began, and for how long it was busy.

        Another must have been placed before, and nothing else have run between the two.
        """
        previous, before_ns = self._previous, self._ended_ns
        assert previous is not None
        ended_ns = before_ns + round(previous.elapsed_time(events.last) * _NS_PER_MS)
        self._let_go()
        started_ns = launched_ns if launched_ns > before_ns else before_ns
        if ended_ns > seen_ns:
            ended_ns = seen_ns
        if ended_ns < started_ns:
            ended_ns = started_ns
        self._previous, self._held, self._ended_ns = events.last, events, ended_ns
        return started_ns, ended_ns - started_ns

    def follow_ring(self, steps: int, seen_ns: int) -> list[int]:
        """Return the same of the ring's next steps, at most that many: those that have finished, two numbers each."""
        assert self._ring is not None and self._previous is not None
        times, last, self._ended_ns = self._ring.read(self._previous, self._ended_ns, seen_ns, steps)
        if last is not None:
            if self._held is not None:
                self._pool.give_back(self._held)
            self._previous, self._held = last, None
        return times

    def _let_go(self) -> None:
        if self._held is not None:
            self._pool.give_back(self._held)
        elif self._previous is not None and self._ring is not None:
            self._ring.free()
