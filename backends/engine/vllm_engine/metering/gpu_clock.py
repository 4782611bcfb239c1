"""Time GPU steps with pooled CUDA events, without synchronising."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

# A stream that was idle for longer than this had no work left: the next step began when it was launched.
DRAINED_NS: Final = 20_000
_SURELY_DRAINED_NS: Final = 500_000  # more than the two clocks can differ: no need to read the GPU's time
_DRIFT: Final = 10_000  # clocks drift by less than 1/10,000; an anchor that shows more was launched late
_NS_PER_MS: Final = 1_000_000


class GpuEvent(Protocol):
    """A CUDA event with timing."""

    def record(self, stream: Any = None, /) -> Any:
        """Record the event on a stream; `None`: the current one."""

    def query(self) -> bool:
        """Return whether the stream has passed it."""

    def elapsed_time(self, later: Any, /) -> float:
        """Return the milliseconds from this event to a later one; both must have completed."""


class ReadRing(Protocol):
    """A ring buffer of steps with one GPU event each, at their end; see step_ring.StepRing."""

    def read(
        self, before: GpuEvent, ended_ns: int, seen_ns: int, most: int, /
    ) -> tuple[list[int], GpuEvent | None, int]:
        """Return the starts and busy times of the next finished steps (see GpuClock.follow), with the event and the end
        time of the last one.

        The event stays in use until the next call.
        """

    def free(self) -> None:
        """Return the event of the last `read` to the ring."""


@dataclass(slots=True)
class StepEvents:
    """The events of one step: before its forward pass, after it, after sampling."""

    first: GpuEvent
    middle: GpuEvent
    last: GpuEvent


class EventPool:
    """A fixed number of reusable events. `take` returns `None` while all are in use: the step then goes unmeasured."""

    def __init__(self, make: Callable[[], GpuEvent], size: int) -> None:
        self._free = [StepEvents(make(), make(), make()) for _ in range(size)]

    def take(self) -> StepEvents | None:
        """Return events for a step, or `None` if all are in use."""
        return self._free.pop() if self._free else None

    def give_back(self, events: StepEvents) -> None:
        """Return events to the pool after their times have been read."""
        self._free.append(events)


@dataclass(slots=True)
class StepTimes:
    """A step's start by the host's monotonic clock, and the time that it and its forward pass kept the GPU busy."""

    started_ns: int
    busy_ns: int
    forward_ns: int | None


class GpuClock:
    """Maps the steps of one stream, in order, from GPU time to the host's clock.

    If the stream was idle, a step begins at its launch; otherwise it begins the measured gap after the previous step's
    end. The clocks drift apart by parts per million, so each step is bounded by what the host knows: it did not begin
    before its launch, and it had ended when its last event was seen.

    A step with a first event is an anchor (`place`): its duration is measured on the GPU. Steps between anchors have
    one
    event each (`follow`): their end is computed from the previous step's end, and they begin at their launch or at that
    end, whichever is later.
    """

    def __init__(self, pool: EventPool, ring: ReadRing | None = None) -> None:
        self._pool = pool
        self._ring = ring
        self._previous: GpuEvent | None = None  # at the end of the last step
        self._held: StepEvents | None = None  # the events of the pool that `_previous` is one of
        self._ended_ns = 0
        self._anchored_ns = 0

    def place(self, events: StepEvents, launched_ns: int, seen_ns: int, *, has_forward: bool) -> StepTimes:
        """Return a finished step's times. Its events go back to the pool once the next step has been read."""
        busy_ns = round(events.first.elapsed_time(events.last) * _NS_PER_MS)
        forward_ns = round(events.first.elapsed_time(events.middle) * _NS_PER_MS) if has_forward else None
        started_ns = launched_ns
        if self._previous is not None:
            if launched_ns - self._ended_ns < _SURELY_DRAINED_NS:
                gap_ns = round(self._previous.elapsed_time(events.first) * _NS_PER_MS)
                chained_ns = self._ended_ns + max(0, gap_ns)
                if gap_ns <= DRAINED_NS:
                    started_ns = chained_ns
                else:  # a launch that the host delayed must not shift the ends that are computed from it
                    started_ns = max(launched_ns, chained_ns - (launched_ns - self._anchored_ns) // _DRIFT)
        self._let_go()
        self._anchored_ns = launched_ns
        started_ns = min(max(started_ns, launched_ns), seen_ns - busy_ns)
        started_ns = max(started_ns, self._ended_ns)
        self._previous, self._held = events.last, events
        self._ended_ns = started_ns + busy_ns
        return StepTimes(started_ns, busy_ns, forward_ns)

    def follow(self, events: StepEvents, launched_ns: int, seen_ns: int) -> tuple[int, int]:
        """Return the start and busy time in nanoseconds of a finished step that has no first event.

        A step must have been placed before, and nothing may have run between the two.
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
        """Return start and busy time in nanoseconds, alternating, of the ring's next finished steps, at most `steps` of
        them.
        """
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
