"""A target's health: whether it may be called, and its latency."""

import logging
from typing import TYPE_CHECKING, Final

from contracts.errors import (
    EngineUnavailable,
    TollkeeperError,
    UpstreamError,
    UpstreamRateLimited,
)
from contracts.serving.configuration import TargetSpec
from gateway.config.targets import TargetReplaced
from gateway.routing.health.breaker import Breaker, CallPermission

if TYPE_CHECKING:
    from gateway.routing.health.pool_health import PoolHealth

_log = logging.getLogger(__name__)

_SECOND_NS: Final = 1_000_000_000
LONGEST_REST_SECONDS: Final = 300.0  # limit for a Retry-After: a server that asks for a day is called again earlier
_ABOUT_THE_PATH: Final = "upstream_not_found"  # says nothing about other requests to the target


class TargetHealth:
    """One target's health: the same object while its specification is unchanged. Times are monotonic nanoseconds.

    A rest is the pause that a target asks for with Retry-After: during it the target is called only if no other one may
    be.
    """

    __slots__ = (
        "breaker",
        "firsts",
        "firsts_ns",
        "id",
        "ignores_limit",
        "is_away",
        "is_plain",
        "pool",
        "provider",
        "provider_breaker",
        "refuses_streams",
        "rests_until_ns",
        "slow_is_whole",
        "spec",
        "wholes",
        "wholes_ns",
    )

    def __init__(self, pool: "PoolHealth", spec: TargetSpec) -> None:
        self.pool = pool
        self.spec = spec
        self.id = spec.id
        self.provider = spec.provider or spec.kind
        self.breaker: Breaker | None = None
        self.provider_breaker: Breaker | None = None
        self.ignores_limit = False  # it exceeded max_tokens, and has not honoured it since
        self.is_away = False  # there is a reason not to call it
        self.is_plain = True  # fast path: a request may be sent here without further checks
        self.slow_is_whole = False  # its circuit is open for slow complete answers, not for slow first tokens
        self.rests_until_ns = 0
        self.refuses_streams = False  # it has refused a complete answer's request because it was sent as a stream
        self.firsts = self.firsts_ns = 0  # recent answers with a measured first token, and the sum of their times
        self.wholes = self.wholes_ns = 0  # complete answers

    def ask(self, now_ns: int) -> CallPermission:
        """Return whether the target may be called now."""
        if not self.is_away:
            return CallPermission.YES
        leave = CallPermission.YES if self.breaker is None else self.breaker.ask(now_ns)
        if self.provider_breaker is not None:
            leave = min(leave, self.provider_breaker.ask(now_ns))
        if self._rests(now_ns):
            leave = min(leave, CallPermission.RATHER_NOT)
        self.look(now_ns)
        return leave

    def begin(self) -> tuple[Breaker, ...]:
        """Start a call; return the breakers for which it is a probe. A reload may replace them before the call ends.

        A call to an unavailable target, because no other one is available, is a probe as well.
        """
        if not self.is_away:
            return ()
        self.pool.note_probe()
        both = (self.breaker, self.provider_breaker)
        probed = tuple([one for one in both if one is not None and one.state in ("open", "half_open")])
        for breaker in probed:
            breaker.begin_probe()
        return probed

    def end_probe(
        self,
        probed: tuple[Breaker, ...],
        now_ns: int,
        *,
        is_good: bool | None,
        took_ns: int | None,
        is_whole: bool,
        is_lost: bool = False,
        why: str = "",
    ) -> None:
        """Record the outcome of a probe; `is_good` is `None` if it showed nothing. For the other arguments see
        `Breaker.end_probe`.
        """
        if is_whole != self.slow_is_whole:
            took_ns = None  # it was slow with the other kind of answer
        for breaker in probed:
            breaker.end_probe(now_ns, is_good=is_good, took_ns=took_ns, is_lost=is_lost, why=why)
        self.look(now_ns)

    def note_success(self, took_ns: int | None, *, is_whole: bool) -> None:
        """Record an answer that was not a probe: the time to its first token, or of the complete answer."""
        if self.breaker is not None:
            self.breaker.succeeded()
        if self.provider_breaker is not None:
            self.provider_breaker.succeeded()
        self.note_time(took_ns, is_whole=is_whole)

    def note_time(self, took_ns: int | None, *, is_whole: bool) -> None:
        """Record how long an answer took, in nanoseconds; `None`: unknown."""
        if took_ns is None:
            return
        if is_whole:
            self.wholes += 1
            self.wholes_ns += took_ns
        else:
            self.firsts += 1
            self.firsts_ns += took_ns
            if self.pool.policy.hedge is not None:
                self.pool.firsts.add(took_ns)

    def note_failure(self, now_ns: int, error: TollkeeperError) -> None:
        """Record a failure that was not a probe."""
        if self.breaker is not None:
            self.breaker.failed(now_ns, failure_words(error))
        if self.provider_breaker is not None:
            self.provider_breaker.failed(now_ns, failure_words(error))
        self.look(now_ns)

    def rest(self, now_ns: int, seconds: float) -> None:
        """Pause the target for as long as it asks (Retry-After). A target without a breaker is still called; only
        retries wait.
        """
        until_ns = now_ns + round(min(seconds, LONGEST_REST_SECONDS) * _SECOND_NS)
        self.rests_until_ns = max(self.rests_until_ns, until_ns)
        self.look(now_ns)

    def look(self, now_ns: int) -> None:
        """Update whether there is a reason not to call the target."""
        self.is_away = (
            (self.breaker is not None and not self.breaker.is_calm)
            or (self.provider_breaker is not None and not self.provider_breaker.is_calm)
            or self._rests(now_ns)
        )
        self.is_plain = not (self.is_away or self.ignores_limit or self.pool.is_probe_due)
        if self.pool.targets.get(self.id) is self:
            if self.is_away:
                self.pool.away.add(self.id)
            else:
                self.pool.away.discard(self.id)

    def note_limit(self, now_ns: int, *, is_ignored: bool) -> None:
        """Record whether an answer exceeded the max_tokens that the target was sent, or ended there by itself."""
        if is_ignored == self.ignores_limit:
            return
        self.ignores_limit = is_ignored
        name = f"{self.pool.id}/{self.id}"
        if is_ignored:
            _log.warning(
                "target ignores max_tokens: its streams are cut, its whole answers cost more than allowed",
                extra={"target": name},
            )
        else:
            _log.warning("target honours max_tokens again", extra={"target": name})
        self.look(now_ns)

    def _rests(self, now_ns: int) -> bool:
        return self.rests_until_ns > now_ns and self.breaker is not None

    def wants_probe(self, now_ns: int) -> bool:
        """Return whether a probe is due, or a share of requests that only the caller can send it."""
        if self.rests_until_ns > now_ns:
            return False
        breakers = [one for one in (self.breaker, self.provider_breaker) if one is not None and not one.is_calm]
        return bool(breakers) and all(one.state == "recovering" or one.wants_probe(now_ns) for one in breakers)

    def wait_ns(self, now_ns: int) -> int:
        """Return in how many nanoseconds it may be called again; 0: now, or when a probe in progress has ended."""
        breakers = [one for one in (self.breaker, self.provider_breaker) if one is not None and one.state == "open"]
        return max([one.until_ns - now_ns for one in breakers] + [self.rests_until_ns - now_ns, 0])

    def mean_ns(self, is_whole: bool, least: int) -> float | None:
        """Return the mean time (ns) of complete answers or first tokens; `None` with fewer than `least` samples."""
        count, spent = (self.wholes, self.wholes_ns) if is_whole else (self.firsts, self.firsts_ns)
        return spent / count if count >= least else None

    def forget_times(self) -> None:
        """Discard the measured answer times."""
        self.firsts = self.firsts_ns = self.wholes = self.wholes_ns = 0

    def turn(self) -> None:
        """Halve the weight of measured times, so that recent ones count most."""
        self.firsts, self.firsts_ns = self.firsts // 2, self.firsts_ns // 2
        self.wholes, self.wholes_ns = self.wholes // 2, self.wholes_ns // 2


def is_fault(error: TollkeeperError) -> bool:
    """Return whether an error means that a target is unhealthy: not if it refuses a request or limits our rate.

    An engine host's link has its own breaker: a call to an unavailable host fails at once and costs nothing.
    """
    if not isinstance(error, UpstreamError) or error.error_code == _ABOUT_THE_PATH:
        return False
    return not isinstance(error, UpstreamRateLimited | EngineUnavailable | TargetReplaced)


def rest_asked(error: TollkeeperError) -> float | None:
    """Return for how many seconds a target's error asks to pause (Retry-After); `None` if it does not."""
    if isinstance(error, UpstreamError) and not isinstance(error, EngineUnavailable):
        return error.retry_after_seconds
    return None


def failure_words(error: TollkeeperError) -> str:
    """Describe a failure for operators: the error's code, and the target's HTTP status if it answered."""
    status = error.upstream_status
    return error.error_code if status is None else f"{error.error_code}, upstream status {status}"
