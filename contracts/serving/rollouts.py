"""Rollouts: a candidate model that takes a growing share of what an incumbent answers on a route, and what ends it.

Who takes part is drawn here; what both arms did is in `algorithms/rollouts/rollout_tally.py`, and when that is a
breach in
`algorithms/rollouts/rollout_verdict.py`.
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
# Who pays for copies. No tenant can have this name, which is not a slug: nobody is billed, and it is a line of its own.
PLATFORM_TENANT: Final = "_platform"
MAX_STEPS: Final = 20
_MILLION: Final = 1_000_000
_PARTS_OF_PERCENT: Final = _MILLION // 100
_LEAST_PERCENT: Final = 0.01


def _check_percent(name: str, percent: float) -> None:
    if not _LEAST_PERCENT <= percent <= 100:
        raise ConfigurationError(f"{name} must be {_LEAST_PERCENT:g} to 100, not {percent:g}")


class RolloutStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A share (percent) of those who may take part, for at least so long and until the candidate had so many."""

    percent: float
    min_minutes: float = 10.0
    min_requests: int = 100

    def __post_init__(self) -> None:
        """Raise ConfigurationError on bounds that no step can have."""
        _check_percent("percent of a step", self.percent)
        if not 0 <= self.min_minutes <= 100_000:
            raise ConfigurationError(f"min_minutes must be 0 to 100000, not {self.min_minutes:g}")
        if not 0 <= self.min_requests <= 1_000_000_000:
            raise ConfigurationError(f"min_requests must be 0 to 1000000000, not {self.min_requests}")


DEFAULT_STEPS: Final = tuple(RolloutStep(percent=percent) for percent in (1.0, 5.0, 25.0, 100.0))


class RolloutGuards(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the candidate may be worse by than the incumbent, over the last `window_seconds`. `None`: by anything.

    `*_increase` are differences of shares (0 to 1), `*_ratio` are ratios: of the 95th percentile of the time to the
    first token, of that between tokens and of the whole answer's, and of the mean cost. Times that differ by less than
    `min_difference_ms` (between tokens: a twentieth of that) are alike. Nothing is judged of fewer than `min_requests`
    of an arm. Where the incumbent has too few in the window, all of the rollout's count.
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
        """Raise ConfigurationError on bounds that say nothing."""
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
    """Copies of the given number of percent of the incumbent's requests go to the candidate as well; nobody sees their
    answers.

    At most `max_concurrent` at a gateway and `max_usd_per_day` (UTC) in all, which the platform pays. What has no price
    cannot be held to a sum of money and is not copied. `by_meaning` compares answers by the embedder, else by words.
    """

    percent: float
    max_usd_per_day: Decimal
    max_concurrent: int = 4
    by_meaning: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigurationError on bounds that bound nothing."""
        _check_percent("shadow.percent", self.percent)
        if not self.max_usd_per_day.is_finite() or not 0 < self.max_usd_per_day <= 1_000_000:
            raise ConfigurationError(
                f"shadow.max_usd_per_day must be above 0 and at most 1000000, not {self.max_usd_per_day}"
            )
        if not 1 <= self.max_concurrent <= 256:
            raise ConfigurationError(f"shadow.max_concurrent must be 1 to 256, not {self.max_concurrent}")

    @property
    def max_pico_usd_per_day(self) -> int:
        """Return the day's bound in pico-USD."""
        return pico_usd(self.max_usd_per_day)


class RolloutRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of a rollout. `tenants` alone take part, where they are stated; `not_tenants` never do.

    `promotes` has the last step's end replace the incumbent on the route; else it stays there until someone does.
    """

    steps: tuple[RolloutStep, ...] = DEFAULT_STEPS
    guards: RolloutGuards = RolloutGuards()
    shadow: ShadowPolicy | None = None
    tenants: tuple[str, ...] = ()
    not_tenants: tuple[str, ...] = ()
    promotes: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigurationError on steps that lead nowhere."""
        if len(self.steps) > MAX_STEPS:
            raise ConfigurationError(f"a rollout has {len(self.steps)} steps; {MAX_STEPS} is the most")
        if not self.steps and self.shadow is None:
            raise ConfigurationError("a rollout needs steps, or a shadow, or both: it would do nothing")
        percents = [step.percent for step in self.steps]
        if any(later <= earlier for earlier, later in zip(percents, percents[1:], strict=False)):
            shown = ", ".join(f"{percent:g}" for percent in percents)
            raise ConfigurationError(f"each step must have more than the one before it; they have {shown} percent")
        if self.promotes and not self.steps:
            raise ConfigurationError("promotes has no effect without steps")

    def takes(self, tenant: str) -> bool:
        """Return whether a tenant's requests may take part."""
        return tenant not in self.not_tenants and (not self.tenants or tenant in self.tenants)


class RolloutSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout as gateways act on it, at one `term` of it. `stepped_at_ns` (Unix) is when its present step began."""

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
        """Raise ConfigurationError if both arms are one, or the step is none of its own."""
        if self.incumbent == self.candidate:
            raise ConfigurationError(
                f"rollout {self.id!r}: incumbent and candidate are both {self.incumbent!r}", param="candidate"
            )
        if self.rules.steps and not 0 <= self.step < len(self.rules.steps):
            raise ConfigurationError(f"rollout {self.id!r} has {len(self.rules.steps)} steps and stands at {self.step}")

    @property
    def is_live(self) -> bool:
        """Return whether the candidate has its share now."""
        return self.state in LIVE

    @property
    def percent(self) -> float:
        """Return the share (percent) that the candidate has now."""
        return self.rules.steps[self.step].percent if self.is_live and self.rules.steps else 0.0

    def draws(self, tenant: str, unit: str) -> bool:
        """Return whether those of a unit are the candidate's. Who is once stays so while the share grows."""
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
    """Return what is drawn as one: a conversation, else an end user, else a key."""
    if conversation:
        return f"conversation/{conversation}"
    return f"user/{user}" if user else f"key/{key_id}"


def place_of(salt: bytes, tenant: str, unit: str) -> int:
    """Return a unit's place, 0 to 999,999, alike for all of them: a keyed hash, so that nobody can choose it."""
    drawn = blake2b(f"{tenant}\n{unit}".encode(errors="surrogatepass"), key=salt, digest_size=8).digest()
    return int.from_bytes(drawn, "big") * _MILLION >> 64
