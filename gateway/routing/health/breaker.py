"""Whether something that fails may be called: closed as long as it is well, open for a pause, half open for a probe.

A target has one, and a provider with a playbook has one for all of its targets.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Final, Literal

from contracts.serving.failures import BreakerPolicy

_SECOND_NS: Final = 1_000_000_000
_JITTER: Final = 0.2  # of a pause: gateways that saw the same failure must not all probe at once
_MOST_LOST: Final = 3  # probes in a row: each has kept a request waiting for another target's answer

State = Literal["closed", "open", "half_open", "recovering"]


class Leave(IntEnum):
    """Whether a call may be made now."""

    NO = 0
    RATHER_NOT = 1  # only if nobody else may be called
    PROBE = 2  # and its outcome decides
    YES = 3


class Breaker:
    """One breaker. Times are monotonic nanoseconds; `random` gives a number from 0 to 1.

    `on_change` is told when it opens, and when it is closed again.

    What a call that was begun in an earlier state ends with changes nothing: only a probe closes it again.
    """

    __slots__ = (
        "_failures",
        "_good_probes",
        "_last_failures",
        "_last_successes",
        "_lost_probes",
        "_on_change",
        "_pause_ns",
        "_probes",
        "_random",
        "_ramp_seconds",
        "_recovered_at_ns",
        "_turned_ns",
        "failures_in_a_row",
        "is_calm",
        "opened",
        "policy",
        "slow_bar_ns",
        "state",
        "successes",
        "until_ns",
        "why",
    )

    def __init__(
        self,
        policy: BreakerPolicy,
        random: Callable[[], float],
        on_change: "Callable[[Breaker], None] | None" = None,
    ) -> None:
        self.policy = policy
        self._random = random
        self._on_change = on_change
        self.state: State = "closed"
        self.is_calm = True  # closed: one look says that a call may be made
        self.why = ""  # of the last opening
        self.until_ns = 0  # when a probe may be made, where it is open
        self.opened = 0  # times
        self.successes = 0  # in this window, as the next
        self.failures_in_a_row = 0
        self.slow_bar_ns: int | None = None  # a probe that takes longer is not a good one
        self._failures = 0
        self._last_successes = 0
        self._last_failures = 0
        self._probes = 0  # in progress
        self._good_probes = 0
        self._lost_probes = 0  # in a row
        self._pause_ns = 0
        self._recovered_at_ns = 0
        self._ramp_seconds = 0.0
        self._turned_ns = 0

    def ask(self, now_ns: int) -> Leave:
        """Return whether a call may be made now. A probe that is made is begun by `begin_probe`."""
        if self.is_calm:
            return Leave.YES
        if self.state == "open":
            if now_ns < self.until_ns:
                return Leave.NO
            self.state, self._good_probes = "half_open", 0
        if self.state == "half_open":
            return Leave.NO if self._probes else Leave.PROBE
        share = (now_ns - self._recovered_at_ns) / (self._ramp_seconds * _SECOND_NS)
        if share >= 1:
            self._close()
            return Leave.YES
        return Leave.YES if self._random() < share else Leave.RATHER_NOT

    def wants_probe(self, now_ns: int) -> bool:
        """Return whether it waits for a probe that nobody has begun."""
        return (self.state == "open" and now_ns >= self.until_ns) or (self.state == "half_open" and not self._probes)

    def begin_probe(self) -> None:
        """Accept the place of the one probe that may be in progress, or begin one before its time."""
        if self.state == "open":
            self.state, self._good_probes = "half_open", 0
        self._probes += 1

    def end_probe(
        self,
        now_ns: int,
        *,
        is_good: bool | None,
        took_ns: int | None = None,
        is_lost: bool = False,
        why: str = "",
    ) -> None:
        """Accept a probe's outcome; `None`: it showed nothing, as where its client left.

        `is_lost`: another target was asked as well, and was ahead. One such may be chance, several in a row are not.
        """
        self._probes -= 1
        if self.state != "half_open":
            return
        if is_good is None:
            self._lost_probes += is_lost
            if self._lost_probes >= _MOST_LOST:
                self.open(now_ns, f"another target was ahead of {self._lost_probes} probes in a row", doubled=True)
            return
        if is_good and took_ns is not None and self.slow_bar_ns is not None and took_ns > self.slow_bar_ns:
            is_good, why = False, self.why
        if not is_good:
            self.open(now_ns, why, doubled=True)
            return
        self._good_probes += 1
        self._lost_probes = 0
        if self._good_probes < self.policy.good_probes:
            return
        self._pause_ns = 0
        self._forget()
        if self.policy.ramp_seconds > 0:
            self._ramp_up(now_ns, self.policy.ramp_seconds)
        else:
            self._close()

    def begin_slowly(self, now_ns: int, seconds: float) -> None:
        """Let the share of turns grow from nothing to the whole, as after a recovery: the target has just joined."""
        if seconds > 0 and self.state == "closed":
            self._ramp_up(now_ns, seconds)
            self.is_calm, self.why = False, "it joined"

    def _ramp_up(self, now_ns: int, seconds: float) -> None:
        self.state, self._recovered_at_ns, self._ramp_seconds = "recovering", now_ns, seconds

    def succeeded(self) -> None:
        """Accept a success that was no probe."""
        self.successes += 1
        self.failures_in_a_row = 0

    def failed(self, now_ns: int, why: str) -> None:
        """Accept a failure that was no probe: perhaps one too many."""
        if self.state in ("open", "half_open"):
            return
        self._failures += 1
        self.failures_in_a_row += 1
        if self.failures_in_a_row >= self.policy.failures_in_a_row:
            self.open(now_ns, f"{self.failures_in_a_row} failures in a row, the last {why}")
            return
        failed = self._failures + self._last_failures
        seen = failed + self.successes + self._last_successes
        if seen >= self.policy.least_requests and failed >= seen * self.policy.failure_share:
            self.open(now_ns, f"{failed} of {seen} requests failed, the last {why}")

    def open(self, now_ns: int, why: str, *, doubled: bool = False) -> None:
        """Call nothing for a pause: the first, or one twice as long as the last."""
        first, longest = self.policy.first_pause_seconds, self.policy.longest_pause_seconds
        seconds = min(2 * self._pause_ns / _SECOND_NS, longest) if doubled and self._pause_ns else first
        self._pause_ns = round(seconds * _SECOND_NS)
        self.until_ns = now_ns + round(self._pause_ns * (1 + _JITTER * self._random()))
        self.state, self.is_calm, self.why = "open", False, why
        self.opened += 1
        self._lost_probes = 0
        self._forget()
        if self._on_change is not None:
            self._on_change(self)

    def suspect(self, why: str) -> None:
        """Let the next call be a probe: someone else has had failures."""
        if self.state == "closed":
            self.state, self.is_calm, self.why, self._good_probes = "half_open", False, why, 0

    def turn(self, now_ns: int) -> None:
        """Start the next half of the window where it is time: what is older than the last half counts no more."""
        if now_ns - self._turned_ns < self.policy.window_seconds * _SECOND_NS / 2:
            return
        self._turned_ns = now_ns
        self._last_successes, self.successes = self.successes, 0
        self._last_failures, self._failures = self._failures, 0

    def _close(self) -> None:
        self.state, self.is_calm, self.slow_bar_ns = "closed", True, None
        if self._on_change is not None:
            self._on_change(self)

    def _forget(self) -> None:
        self.successes = self._failures = self._last_successes = self._last_failures = self.failures_in_a_row = 0
