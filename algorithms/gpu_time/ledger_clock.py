"""The engine host's part of the ledger: turns steps, queue states and lifecycle events into gapless time records.

Pure: all times are passed in, on one clock (the engine's monotonic clock, or CUDA events mapped to it), in nanoseconds.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

from contracts.recording.records import GapCause, StepKind

# An engine that becomes idle writes a record after a second, so that autoscaling knows early. While it stays idle the
# interval doubles up to the maximum, because each record wakes gateway, collector and store.
FIRST_IDLE_NS: Final = 1_000_000_000
LONGEST_IDLE_NS: Final = 30_000_000_000

Lifecycle = Literal["load", "warmup", "sleep", "dead"]
Cause = Literal["host", "unknown", "idle", "load", "warmup", "sleep", "dead"]


@dataclass(frozen=True, slots=True)
class Interval:
    """The times of a step record: `gap_ns` of `gap_cause` directly before, then `busy_ns` of `kind`."""

    kind: StepKind
    started_at_ns: int
    busy_ns: int
    gap_ns: int = 0
    gap_cause: GapCause = "unknown"


@dataclass(frozen=True, slots=True)
class _State:
    """The engine's state outside of steps. `runnable` is `None` until the queue was first reported."""

    runnable: bool | None = None
    lifecycle: Lifecycle | None = None

    @property
    def cause(self) -> Cause:
        """Return the cause of time outside of steps in this state."""
        if self.lifecycle is not None:
            return self.lifecycle
        if self.runnable is None:
            return "unknown"
        return "host" if self.runnable else "idle"


class LedgerClock:
    """Tracks one engine from `started_at_ns` on. Every moment is in at most one record.

    Queue states and lifecycle events are reported when they happen, steps when they are measured, which may be after
    later events; steps are reported in order. A step that seems to begin before the last one ended (two clocks differ
    by microseconds) begins at that end.
    """

    def __init__(self, started_at_ns: int) -> None:
        self._told_until = started_at_ns
        self._state = _State()  # at `_told_until`
        self._latest = _State()  # after all reported changes
        self._changes: deque[tuple[int, _State]] = deque()

    def queue(self, at_ns: int, *, runnable: bool) -> None:
        """Record whether from now on any request waits, runs, or is in an unmeasured step."""
        self._change(at_ns, _State(runnable, self._latest.lifecycle))

    def begin(self, at_ns: int, lifecycle: Lifecycle) -> None:
        """Record the beginning of loading, warming up, sleep or death. Steps measured meanwhile still count
        as steps.
        """
        self._change(at_ns, _State(self._latest.runnable, lifecycle))

    def end(self, at_ns: int) -> None:
        """Record that the engine serves again."""
        self._change(at_ns, _State(self._latest.runnable, None))

    def step(self, started_at_ns: int, busy_ns: int) -> list[Interval]:
        """Return the records of the time before this step that is not covered yet, then the step itself.

        The earlier ones are idle and lifecycle times. Time that the host spent between steps is the gap of the record
        after it. Raises ValueError for a negative time.
        """
        if busy_ns < 0:
            raise ValueError(f"a step cannot be busy for {busy_ns} ns")
        began_at_ns = max(started_at_ns, self._told_until)
        stretches, gap_ns, cause = self._between(began_at_ns)
        stretches.append(Interval("step", began_at_ns, busy_ns, gap_ns, cause))
        self._advance(began_at_ns + busy_ns)
        return stretches

    def flush(self, at_ns: int) -> list[Interval]:
        """Return the records of the time up to now that is not covered yet, for an engine without steps.

        Call it only if no step is in flight or unmeasured, because covered time cannot become a step later.
        """
        at_ns = max(at_ns, self._told_until)
        stretches, gap_ns, cause = self._between(at_ns)
        if gap_ns:
            stretches.append(Interval("idle", at_ns, 0, gap_ns, cause))
        self._advance(at_ns)
        return stretches

    def _change(self, at_ns: int, state: _State) -> None:
        if state != self._latest:
            # A change that is reported out of order begins at the change before it, so that states never overlap.
            last_ns = self._changes[-1][0] if self._changes else self._told_until
            self._changes.append((max(at_ns, last_ns), state))
            self._latest = state

    def _pieces(self, until_ns: int) -> list[tuple[int, int, Cause]]:
        """Split the uncovered time up to `until_ns` at each change: (begin, end, cause), none empty."""
        pieces: list[tuple[int, int, Cause]] = []
        begin, state = self._told_until, self._state
        for at_ns, after in (*self._changes, (until_ns, self._latest)):
            end = min(at_ns, until_ns)
            if end > begin:
                if pieces and pieces[-1][2] == state.cause:
                    begin = pieces.pop()[0]
                pieces.append((begin, end, state.cause))
                begin = end
            state = after
        return pieces

    def _between(self, until_ns: int) -> tuple[list[Interval], int, GapCause]:
        """Return the records before `until_ns`, and the remaining gap with its cause, for the next record."""
        stretches: list[Interval] = []
        gap_ns = 0
        gap_cause: GapCause = "unknown"
        for begin, end, cause in self._pieces(until_ns):
            if cause == "host" or cause == "unknown":
                if gap_ns:  # the queue was first reported during this gap, so its two parts have different causes
                    stretches.append(Interval("idle", begin, 0, gap_ns, gap_cause))
                gap_ns, gap_cause = end - begin, cause
            else:
                stretches.append(Interval(cause, begin, end - begin, gap_ns, gap_cause))
                gap_ns, gap_cause = 0, "unknown"
        return stretches, gap_ns, gap_cause

    def _advance(self, until_ns: int) -> None:
        while self._changes and self._changes[0][0] <= until_ns:
            self._state = self._changes.popleft()[1]
        self._told_until = until_ns
