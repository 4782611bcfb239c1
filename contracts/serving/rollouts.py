"""Rollouts: a candidate model that takes a growing share of an incumbent's requests on a route, and what ends it.

Participants are drawn here; the results of both arms are in `algorithms/rollouts/rollout_tally.py`, and the decision
that a guard is violated in `algorithms/rollouts/rollout_verdict.py`.
"""

from collections.abc import Mapping
from decimal import Decimal
from hashlib import blake2b
from typing import Final, Literal

import msgspec

from contracts.errors import ConfigurationError
from contracts.pricing.money import pico_usd

RolloutState = Literal["running", "paused", "rolled_back", "promoted", "aborted"]

LIVE: Final[tuple[RolloutState, ...]] = ("running", "paused")
# The payer of copies. No tenant can have this name, which is not a slug: nobody is billed, and reports show it
# separately.
PLATFORM_TENANT: Final = "_platform"
MAX_STEPS: Final = 20
_MILLION: Final = 1_000_000
_PARTS_OF_PERCENT: Final = _MILLION // 100
_LEAST_PERCENT: Final = 0.01


def _check_percent(name: str, percent: float) -> None:
    if not _LEAST_PERCENT <= percent <= 100:
        raise ConfigurationError(f"{name} must be {_LEAST_PERCENT:g} to 100, not {percent:g}")


class RolloutStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share (percent) of the participants, for at least `min_minutes` and until the candidate had `min_requests`."""

    percent: float
    min_minutes: float = 10.0
    min_requests: int = 100

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a bound is invalid."""
        _check_percent("percent of a step", self.percent)
        if not 0 <= self.min_minutes <= 100_000:
            raise ConfigurationError(f"min_minutes must be 0 to 100000, not {self.min_minutes:g}")
        if not 0 <= self.min_requests <= 1_000_000_000:
            raise ConfigurationError(f"min_requests must be 0 to 1000000000, not {self.min_requests}")


DEFAULT_STEPS: Final = tuple(RolloutStep(percent=percent) for percent in (1.0, 5.0, 25.0, 100.0))


class RolloutGuards(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much worse the candidate may be than the incumbent, over the last `window_seconds`. `None`: unlimited.

    `*_increase` are differences of shares (0 to 1), `*_ratio` are ratios: of the 95th percentiles of time to first
    token, inter-token latency and duration, and of the mean cost. Times that differ by less than `min_difference_ms`
    (between tokens: a twentieth of that) count as equal. Nothing is judged with fewer than `min_requests` of an arm. If
    the incumbent has too few in the window, all of the rollout's count.
    """

    window_seconds: int = 300
    min_requests: int = 50
    max_error_increase: float | None = 0.02
    max_refusal_increase: float | None = 0.05
    max_ttft_ratio: float | None = 1.5
    max_inter_token_ratio: float | None = 1.5
    max_duration_ratio: float | None = 2.0
    max_cost_ratio: float | None = 1.5
    min_difference_ms: float = 20.0

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a bound is invalid."""
        if not 10 <= self.window_seconds <= 86_400:
            raise ConfigurationError(f"window_seconds must be 10 to 86400, not {self.window_seconds}")
        if not 5 <= self.min_requests <= 1_000_000:
            raise ConfigurationError(f"min_requests must be 5 to 1000000, not {self.min_requests}")
        for name in ("max_error_increase", "max_refusal_increase"):
            share = getattr(self, name)
            if share is not None and not 0 <= share < 1:
                raise ConfigurationError(f"{name} must be 0 or more and below 1, not {share:g}")
        for name in ("max_ttft_ratio", "max_inter_token_ratio", "max_duration_ratio", "max_cost_ratio"):
            ratio = getattr(self, name)
            if ratio is not None and not 1 <= ratio <= 1_000:
                raise ConfigurationError(f"{name} must be 1 to 1000, not {ratio:g}")
        if not 0 <= self.min_difference_ms <= 600_000:
            raise ConfigurationError(f"min_difference_ms must be 0 to 600000, not {self.min_difference_ms:g}")


class ShadowPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Copies of this percentage of the incumbent's requests go to the candidate as well; their answers are discarded.

    At most `max_concurrent` at a gateway and `max_usd_per_day` (UTC) in all, charged to no tenant. A request without
    a price cannot be limited by money and is not copied. `by_meaning` compares answers with the embedder, else by
    words.
    """

    percent: float
    max_usd_per_day: Decimal
    max_concurrent: int = 4
    by_meaning: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a bound is invalid."""
        _check_percent("shadow.percent", self.percent)
        if not self.max_usd_per_day.is_finite() or not 0 < self.max_usd_per_day <= 1_000_000:
            raise ConfigurationError(
                f"shadow.max_usd_per_day must be above 0 and at most 1000000, not {self.max_usd_per_day}"
            )
        if not 1 <= self.max_concurrent <= 256:
            raise ConfigurationError(f"shadow.max_concurrent must be 1 to 256, not {self.max_concurrent}")

    @property
    def max_pico_usd_per_day(self) -> int:
        """Return the daily bound in pico-USD."""
        return pico_usd(self.max_usd_per_day)


class RolloutRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requested settings of a rollout. If `tenants` are stated, only they take part; `not_tenants` never do.

    With `promotes`, the candidate replaces the incumbent on the route after the last step; otherwise it stays until
    someone promotes it.
    """

    steps: tuple[RolloutStep, ...] = DEFAULT_STEPS
    guards: RolloutGuards = RolloutGuards()
    shadow: ShadowPolicy | None = None
    tenants: tuple[str, ...] = ()
    not_tenants: tuple[str, ...] = ()
    promotes: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigurationError if the steps are invalid."""
        if len(self.steps) > MAX_STEPS:
            raise ConfigurationError(f"a rollout has {len(self.steps)} steps; the maximum is {MAX_STEPS}")
        if not self.steps and self.shadow is None:
            raise ConfigurationError("a rollout needs steps, a shadow, or both; otherwise it does nothing")
        percents = [step.percent for step in self.steps]
        if any(later <= earlier for earlier, later in zip(percents, percents[1:], strict=False)):
            shown = ", ".join(f"{percent:g}" for percent in percents)
            raise ConfigurationError(f"each step must have more than the one before it; they have {shown} percent")
        if self.promotes and not self.steps:
            raise ConfigurationError("promotes has no effect without steps")

    def takes(self, tenant: str) -> bool:
        """Return whether a tenant's requests may take part in the rollout."""
        return tenant not in self.not_tenants and (not self.tenants or tenant in self.tenants)


class RolloutSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout as gateways run it, at one `term`. `stepped_at_ns` (Unix) is when its current step started."""

    id: str
    route: str
    incumbent: str
    candidate: str
    rules: RolloutRules
    salt: bytes
    state: RolloutState = "running"
    step: int = 0
    term: int = 1
    stepped_at_ns: int = 0

    def __post_init__(self) -> None:
        """Raise ConfigurationError if both arms are the same, or the step does not exist."""
        if self.incumbent == self.candidate:
            raise ConfigurationError(
                f"rollout {self.id!r}: incumbent and candidate are both {self.incumbent!r}", param="candidate"
            )
        if self.rules.steps and not 0 <= self.step < len(self.rules.steps):
            raise ConfigurationError(
                f"rollout {self.id!r} has {len(self.rules.steps)} steps and is at step {self.step}"
            )

    @property
    def is_live(self) -> bool:
        """Return whether the candidate currently gets its share."""
        return self.state in LIVE

    @property
    def percent(self) -> float:
        """Return the candidate's current share (percent)."""
        return self.rules.steps[self.step].percent if self.is_live and self.rules.steps else 0.0

    def draws(self, tenant: str, unit: str) -> bool:
        """Return whether the requests of a unit go to the candidate. A unit stays with it while the share grows."""
        return place_of(self.salt, tenant, unit) < round(self.percent * _PARTS_OF_PERCENT)


def rollout_rules(stated: Mapping[str, object]) -> RolloutRules:
    """Build rules from plain data. Raises ConfigurationError, naming the field."""
    try:
        return msgspec.convert(stated, RolloutRules, strict=False)
    except msgspec.ValidationError as error:
        cause = error.__cause__
        raise ConfigurationError(cause.message if isinstance(cause, ConfigurationError) else str(error)) from error


def plain_rules(rules: RolloutRules) -> dict[str, object]:
    """Return rules as plain data, defaults filled in, money as text."""
    plain: dict[str, object] = msgspec.to_builtins(rules)
    return plain


def unit_of(conversation: str, user: str, key_id: str) -> str:
    """Return the unit that is drawn as one: a conversation, else an end user, else a key."""
    if conversation:
        return f"conversation/{conversation}"
    return f"user/{user}" if user else f"key/{key_id}"


def place_of(salt: bytes, tenant: str, unit: str) -> int:
    """Return a unit's position, 0 to 999,999, uniformly distributed: a keyed hash, so that callers cannot choose it."""
    drawn = blake2b(f"{tenant}\n{unit}".encode(errors="surrogatepass"), key=salt, digest_size=8).digest()
    return int.from_bytes(drawn, "big") * _MILLION >> 64
