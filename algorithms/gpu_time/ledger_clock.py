"""The engine host's side of the ledger: turns what it sees (steps, the queue, lifecycle) into stretches without holes.

Pure: every time is handed in, on one clock (the engine's monotonic clock, or CUDA events mapped to it), in ns.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

from contracts.recording.records import GapCause, StepKind

# An engine that has just become idle writes it after a second, so that what scales replicas knows at once. While it
# stays idle the interval doubles, up to the longest: each record wakes the gateway, the collector and the store.
FIRST_IDLE_NS: Final = 1_000_000_000
LONGEST_IDLE_NS: Final = 30_000_000_000

Lifecycle = Literal["load", "warmup", "sleep", "dead"]
Cause = Literal["host", "unknown", "idle", "load", "warmup", "sleep", "dead"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a step record says of time: `gap_ns` of `gap_cause` directly before, then `busy_ns` of `kind`."""

    kind: StepKind
    started_at_ns: int
    busy_ns: int
    gap_ns: int = 0
    gap_cause: GapCause = "unknown"


@dataclass(frozen=True, slots=True)
class _State:
    """What the engine was in between steps. `runnable` is `None` until the queue was first reported."""

    runnable: bool | None = None
    lifecycle: Lifecycle | None = None

    @property
    def cause(self) -> Cause:
        """Return what a moment in no step was spent on."""
        if self.lifecycle is not None:
            return self.lifecycle
        if self.runnable is None:
            return "unknown"
        return "host" if self.runnable else "idle"


class LedgerClock:
    """Follows one engine from `started_at_ns` on. Every instant lands in at most one stretch, and in none unexplained.

    The queue and lifecycle are told as they change, a step once it is measured, which may be after later changes:
    steps come in order among themselves. A step said to begin before the last one ended (two clocks disagree by
    microseconds) begins where that ended.
    """

    def __init__(self, started_at_ns: int) -> None:
        self._told_until = started_at_ns
        self._state = _State()  # at `_told_until`
        self._latest = _State()  # after all changes
        self._changes: deque[tuple[int, _State]] = deque()

    def queue(self, at_ns: int, *, runnable: bool) -> None:
        """Record whether any request waits, runs, or is in a step not measured yet, from now on."""
        self._change(at_ns, _State(runnable, self._latest.lifecycle))

    def begin(self, at_ns: int, lifecycle: Lifecycle) -> None:
        """Record that loading, warming up, sleep or being dead begins; steps measured in it are steps."""
        self._change(at_ns, _State(self._latest.runnable, lifecycle))

    def end(self, at_ns: int) -> None:
        """Record that the engine serves again."""
        self._change(at_ns, _State(self._latest.runnable, None))

    def step(self, started_at_ns: int, busy_ns: int) -> list[Stretch]:
        """Return what went before this step and was not told yet, then the step itself.

        Only the last is a step; the others are idle and lifecycle stretches. A host gap is the gap of what follows.
        Raises ValueError on a negative time.
        """
        if busy_ns < 0:
            raise ValueError(f"a step cannot be busy for {busy_ns} ns")
        began_at_ns = max(started_at_ns, self._told_until)
        stretches, gap_ns, cause = self._between(began_at_ns)
        stretches.append(Stretch("step", began_at_ns, busy_ns, gap_ns, cause))
        self._advance(began_at_ns + busy_ns)
        return stretches

    def flush(self, at_ns: int) -> list[Stretch]:
        """Return what was not told yet up to now, for an engine that does not step.

        Only for a moment when no step is in flight or unmeasured: what is told cannot become a step any more.
        """
        at_ns = max(at_ns, self._told_until)
        stretches, gap_ns, cause = self._between(at_ns)
        if gap_ns:
            stretches.append(Stretch("idle", at_ns, 0, gap_ns, cause))
        self._advance(at_ns)
        return stretches

    def _change(self, at_ns: int, state: _State) -> None:
        if state != self._latest:
            # A change reported out of order counts from the change before it: states never overlap.
            last_ns = self._changes[-1][0] if self._changes else self._told_until
            self._changes.append((max(at_ns, last_ns), state))
            self._latest = state

    def _pieces(self, until_ns: int) -> list[tuple[int, int, Cause]]:
        """Cut the time not told yet, up to `until_ns`, at each change: (begin, end, cause), none of them empty."""
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

    def _between(self, until_ns: int) -> tuple[list[Stretch], int, GapCause]:
        """Return the stretches before `until_ns`, and the gap, with its cause, that is left for what follows."""
        stretches: list[Stretch] = []
        gap_ns = 0
        gap_cause: GapCause = "unknown"
        for begin, end, cause in self._pieces(until_ns):
            if cause == "host" or cause == "unknown":
                if gap_ns:  # the queue was first reported in this gap: its two halves have different causes
                    stretches.append(Stretch("idle", begin, 0, gap_ns, gap_cause))
                gap_ns, gap_cause = end - begin, cause
            else:
                stretches.append(Stretch(cause, begin, end - begin, gap_ns, gap_cause))
                gap_ns, gap_cause = 0, "unknown"
        return stretches, gap_ns, gap_cause

    def _advance(self, until_ns: int) -> None:
        while self._changes and self._changes[0][0] <= until_ns:
            self._state = self._changes.popleft()[1]
        self._told_until = until_ns
