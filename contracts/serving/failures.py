"""Failure policies of a pool: retries, timeouts, circuit breakers.

A playbook states the same for a whole provider: what counts as its outage, which providers answer meanwhile, how it
recovers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from typing import Any, Final, Literal, cast

from contracts.errors import ConfigurationError

_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a target's circuit opens, and how it recovers.

    It opens after `failures_in_a_row`, or if `failure_share` of at least `least_requests` within `window_seconds`
    failed, or if its mean time to first token (or to the complete answer, if tokens are not seen) is `slow_factor`
    times that of the pool's other targets and at least `slow_seconds` more; `slow_factor` `None`: never for slowness. A
    pause lasts `first_pause_seconds`, doubled after every failed probe up to `longest_pause_seconds`. After
    `good_probes` it is called again, with a growing share of requests during `ramp_seconds`.
    """

    failures_in_a_row: int = 5
    failure_share: float = 0.5
    least_requests: int = 20
    window_seconds: float = 30.0
    slow_factor: float | None = 5.0
    slow_seconds: float = 2.0
    first_pause_seconds: float = 1.0
    longest_pause_seconds: float = 30.0
    good_probes: int = 1
    ramp_seconds: float = 0.0

    def __post_init__(self) -> None:
        _refuse_infinite(self, "breaker")
        for name in ("failures_in_a_row", "least_requests", "good_probes"):
            _refuse_unless(getattr(self, name) >= 1, "breaker", name, getattr(self, name), "at least 1")
        _refuse_unless(
            0 < self.failure_share <= 1, "breaker", "failure_share", self.failure_share, "above 0, at most 1"
        )
        if self.slow_factor is not None:
            _refuse_unless(
                self.slow_factor > 1, "breaker", "slow_factor", self.slow_factor, "above 1, or null for never"
            )
        for name in ("window_seconds", "first_pause_seconds", "longest_pause_seconds"):
            _refuse_unless(getattr(self, name) > 0, "breaker", name, getattr(self, name), "above 0")
        for name in ("ramp_seconds", "slow_seconds"):
            _refuse_unless(getattr(self, name) >= 0, "breaker", name, getattr(self, name), "0 or more")
        _refuse_unless(
            self.longest_pause_seconds >= self.first_pause_seconds,
            "breaker",
            "longest_pause_seconds",
            self.longest_pause_seconds,
            f"at least first_pause_seconds, which is {self.first_pause_seconds:g}",
        )


@dataclass(frozen=True, slots=True)
class HedgePolicy:
    """When a second target is called too: after the `quantile` of the pool's times to first token, at least
    `least_seconds`.

    At most `share` of the pool's requests are hedged. The target with the first token answers.
    """

    quantile: float = 0.95
    share: float = 0.05
    least_seconds: float = 0.05

    def __post_init__(self) -> None:
        _refuse_infinite(self, "hedge")
        _refuse_unless(0 < self.quantile < 1, "hedge", "quantile", self.quantile, "above 0 and below 1")
        _refuse_unless(0 < self.share <= 1, "hedge", "share", self.share, "above 0, at most 1")
        _refuse_unless(self.least_seconds >= 0, "hedge", "least_seconds", self.least_seconds, "0 or more")


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """What a pool does about failures.

    A request that fails at one target goes to the next at once. `retries` is how often it then starts over with the
    targets that may be called again, after a pause: random up to `backoff_seconds`, doubled each time up to
    `longest_backoff_seconds`, and no shorter than a target's Retry-After. Both use one retry budget: further attempts
    may be `retry_share` of the pool's requests, plus `retries_per_second`. `first_token_seconds`,
    `between_tokens_seconds` and `total_seconds` (of all attempts together) apply to every kind of target; `None`: only
    the targets' own timeouts apply. A complete answer is requested as a stream if one of the first two is set; if that
    is impossible, `whole_answer_seconds` bounds each attempt. Without a breaker every target is called in its turn.
    `when_all_away` states whether a request is sent to a target with an open circuit if there is no other, or refused
    at once.
    """

    retries: int = 0
    backoff_seconds: float = 0.2
    longest_backoff_seconds: float = 5.0
    retry_share: float = 0.2
    retries_per_second: float = 10.0
    first_token_seconds: float | None = None
    between_tokens_seconds: float | None = None
    total_seconds: float | None = None
    breaker: BreakerPolicy | None = field(default_factory=BreakerPolicy)
    hedge: HedgePolicy | None = None
    when_all_away: Literal["call", "refuse"] = "call"
    whole_answer_seconds: float | None = None

    def __post_init__(self) -> None:
        _refuse_infinite(self, "failures")
        _refuse_unless(
            self.when_all_away in ("call", "refuse"), "failures", "when_all_away", self.when_all_away, "call or refuse"
        )
        _refuse_unless(0 <= self.retries <= 10, "failures", "retries", self.retries, "0 to 10")
        for name in ("retry_share", "retries_per_second"):
            _refuse_unless(getattr(self, name) >= 0, "failures", name, getattr(self, name), "0 or more")
        for name in ("backoff_seconds", "longest_backoff_seconds"):
            _refuse_unless(getattr(self, name) > 0, "failures", name, getattr(self, name), "above 0")
        for name in ("first_token_seconds", "between_tokens_seconds", "total_seconds", "whole_answer_seconds"):
            value = getattr(self, name)
            _refuse_unless(value is None or value > 0, "failures", name, value, "above 0, or null")

    @property
    def is_timed(self) -> bool:
        """Return whether the pool sets its own time limits."""
        return self.times_tokens or self.total_seconds is not None or self.whole_answer_seconds is not None

    @property
    def times_tokens(self) -> bool:
        """Return whether the pool limits times that are only known if tokens are seen as they arrive."""
        return self.first_token_seconds is not None or self.between_tokens_seconds is not None


@dataclass(frozen=True, slots=True)
class Playbook:
    """What happens while a whole provider is down, in all pools.

    `outage` states what counts as an outage over all its targets together, and how it recovers: their circuits open as
    one, and are probed as one. `then` are the providers that answer meanwhile, best first; providers that it does not
    name follow in their usual order.
    """

    provider: str
    then: tuple[str, ...] = ()
    outage: BreakerPolicy = field(default_factory=lambda: BreakerPolicy(failures_in_a_row=10, good_probes=3))

    def __post_init__(self) -> None:
        if not self.provider:
            raise ConfigurationError("a playbook needs the name of a provider")
        if self.provider in self.then:
            raise ConfigurationError(f"playbook {self.provider!r}: the provider that is down cannot answer meanwhile")
        twice = [name for place, name in enumerate(self.then) if name in self.then[:place]]
        if twice:
            raise ConfigurationError(f"playbook {self.provider!r}: then names {twice[0]!r} twice")


def failure_policy(stated: Mapping[str, object] | None) -> FailurePolicy:
    """Build a pool's policy from its settings, with defaults for missing ones.

    Raises ConfigurationError if a name is unknown or a value is invalid.
    """
    if stated is None:
        return DEFAULT_FAILURES
    given = dict(stated)
    for name, kind in (("breaker", BreakerPolicy), ("hedge", HedgePolicy)):
        if given.get(name) is not None:
            given[name] = _built(kind, name, given[name])
    return cast(FailurePolicy, _built(FailurePolicy, "failures", given))


def playbook_of(provider: str, rules: Mapping[str, object]) -> Playbook:
    """Build a provider's playbook from its rules. Raises ConfigurationError if they are invalid."""
    given: dict[str, Any] = {"provider": provider, **rules}
    what = f"playbook {provider!r}"
    if "outage" in given:
        standard = {"failures_in_a_row": 10, "good_probes": 3}
        given["outage"] = _built(BreakerPolicy, f"{what}: outage", given["outage"], standard)
    then = () if given.get("then") is None else given["then"]
    is_list = isinstance(then, list | tuple) and all([isinstance(name, str) for name in then])
    _refuse_unless(is_list, what, "then", repr(then)[:60], "a list of providers' names")
    given["then"] = tuple(then)
    return cast(Playbook, _built(Playbook, what, given))


def _built(kind: type, what: str, given: object, standard: Mapping[str, Any] = _NOTHING) -> object:
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{what} is {repr(given)[:60]}; it must be a mapping of its fields")
    known = {one.name for one in fields(kind)}
    for name in given:
        if name not in known:
            raise ConfigurationError(f"{what}: field {str(name)[:60]!r} is unknown; known: {', '.join(sorted(known))}")
    try:
        return kind(**{**standard, **given})
    except TypeError as error:
        raise ConfigurationError(f"{what}: a value has the wrong type") from error


def _refuse_infinite(policy: "BreakerPolicy | HedgePolicy | FailurePolicy", what: str) -> None:
    for one in fields(policy):
        value = getattr(policy, one.name)
        if isinstance(value, float):
            _refuse_unless(isfinite(value), what, one.name, value, "a finite number")


def _refuse_unless(is_good: bool, what: str, name: str, value: object, wanted: str) -> None:
    if not is_good:
        raise ConfigurationError(f"{what}: {name} is {value}; it must be {wanted}")


DEFAULT_FAILURES: Final = FailurePolicy()
