"""Circuit breakers: closed while calls succeed, open for a pause after failures, half-open for a probe.

Each target has one; a provider with a playbook has one for all of its targets.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Final, Literal

from contracts.serving.failures import BreakerPolicy

_SECOND_NS: Final = 1_000_000_000
_JITTER: Final = 0.2  # relative: gateways that saw the same failure must not all probe at once
_MOST_LOST: Final = 3  # probes in a row: each made a request wait for another target's answer

State = Literal["closed", "open", "half_open", "recovering"]


class CallPermission(IntEnum):
    """Whether a call may be made now."""

    NO = 0
    RATHER_NOT = 1  # only if no other target may be called
    PROBE = 2  # its outcome decides
    YES = 3


class Breaker:
    """One circuit breaker. Times are monotonic nanoseconds; `random` returns a number from 0 to 1.

    `on_change` is called when it opens and when it closes. The outcome of a call that started in an earlier state
    changes nothing: only a probe closes the breaker.
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
        self.is_calm = True  # closed: a call may be made without further checks
        self.why = ""  # reason of the last opening
        self.until_ns = 0  # when a probe may be made, if open
        self.opened = 0  # number of openings
        self.successes = 0  # in this window, like the next count
        self.failures_in_a_row = 0
        self.slow_bar_ns: int | None = None  # a probe that takes longer has failed
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

    def ask(self, now_ns: int) -> CallPermission:
        """Return whether a call may be made now. If the answer is PROBE, start it with `begin_probe`."""
        if self.is_calm:
            return CallPermission.YES
        if self.state == "open":
            if now_ns < self.until_ns:
                return CallPermission.NO
            self.state, self._good_probes = "half_open", 0
        if self.state == "half_open":
            return CallPermission.NO if self._probes else CallPermission.PROBE
        share = (now_ns - self._recovered_at_ns) / (self._ramp_seconds * _SECOND_NS)
        if share >= 1:
            self._close()
            return CallPermission.YES
        return CallPermission.YES if self._random() < share else CallPermission.RATHER_NOT

    def wants_probe(self, now_ns: int) -> bool:
        """Return whether a probe is due and none is in progress."""
        return (self.state == "open" and now_ns >= self.until_ns) or (self.state == "half_open" and not self._probes)

    def begin_probe(self) -> None:
        """Start a probe, the only one in progress or one before it is due."""
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
        """Record a probe's outcome; `None`: it showed nothing, for example because its client disconnected.

        `is_lost`: another target was called too, and was faster. One lost probe may be chance, several in a row are
        not.
        """
        self._probes -= 1
        if self.state != "half_open":
            return
        if is_good is None:
            self._lost_probes += is_lost
            if self._lost_probes >= _MOST_LOST:
                self.open(now_ns, f"another target answered before {self._lost_probes} probes in a row", doubled=True)
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
        """Increase the share of requests from zero to all, as after a recovery: the target has just joined."""
        if seconds > 0 and self.state == "closed":
            self._ramp_up(now_ns, seconds)
            self.is_calm, self.why = False, "it joined"

    def _ramp_up(self, now_ns: int, seconds: float) -> None:
        self.state, self._recovered_at_ns, self._ramp_seconds = "recovering", now_ns, seconds

    def succeeded(self) -> None:
        """Record a success that was not a probe."""
        self.successes += 1
        self.failures_in_a_row = 0

    def failed(self, now_ns: int, why: str) -> None:
        """Record a failure that was not a probe; it may open the breaker."""
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
        """Allow no calls for a pause: the initial one, or twice the last one."""
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
        """Make the next call a probe: another gateway has seen failures."""
        if self.state == "closed":
            self.state, self.is_calm, self.why, self._good_probes = "half_open", False, why, 0

    def turn(self, now_ns: int) -> None:
        """Start the next half of the window if it is due: counts older than the last half are dropped."""
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
