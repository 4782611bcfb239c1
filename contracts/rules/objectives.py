"""Service level objectives: what counts as good, how much may be bad, and how fast that is used up.

Counts are integers and shares are fractions, so that a rate exactly at its threshold is recognised as such. The
arithmetic is that of Google's SRE Workbook, chapter 5 (multi-window, multi-burn-rate alerts).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal, get_args

from contracts.errors import InvalidRequest

Indicator = Literal["ttft", "inter_token", "end_to_end", "availability", "goodput"]
Timed = Literal["ttft", "inter_token", "end_to_end"]
PromptClass = Literal["short", "medium", "long", "very_long", "unknown"]
Severity = Literal["page", "ticket"]
Hook = Literal["freeze_canaries", "shed_batch"]

INDICATORS: Final[tuple[Indicator, ...]] = get_args(Indicator)
TIMED: Final[tuple[Timed, ...]] = get_args(Timed)
PROMPT_CLASSES: Final[tuple[PromptClass, ...]] = get_args(PromptClass)
HOOKS: Final[tuple[Hook, ...]] = get_args(Hook)

# Thresholds are taken from these steps, in tenths of a millisecond: the store counts requests by them (migration 0018),
# so every count is exact, and an objective may be created or changed after the requests that it counts.
STEPS_TENTHS_MS: Final[tuple[int, ...]] = tuple(
    digits * 10**power for power in range(6) for digits in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
)
PROMPT_CLASS_BELOW_TOKENS: Final[Mapping[str, int]] = {"short": 1_024, "medium": 8_192, "long": 32_768}
INDICATORS_KEPT: Final = timedelta(days=90)  # in the store, by hour (migration 0018)
WINDOW_DAYS: Final = (1, 85)  # the stored period, minus the longest burn window's margin
_MAX_TARGET_DECIMALS: Final = 5
_EVERYTHING: Final = Decimal(100)


@dataclass(frozen=True, slots=True)
class Objective:
    """An objective for requests: of those that count in any `window_days`, `target_percent` must be good.

    Empty `tenant`, `model`, `route` and `prompt_class` mean all. `thresholds_ms` holds one threshold if the indicator
    is a time, none for availability, and one to three for goodput, which must all be met. With fewer than `min_events`
    requests, an alert needs a third of that many bad ones.

    Raises InvalidRequest, with a separate code for each, on a target of 0 or 100 %, a threshold that is not one of the
    stored steps, and a window that the store does not cover.
    """

    id: str
    indicator: Indicator
    target_percent: Decimal
    thresholds_ms: Mapping[str, Decimal] = field(default_factory=dict)
    window_days: int = 28
    tenant: str = ""
    model: str = ""
    route: str = ""
    prompt_class: str = ""
    min_events: int = 20
    hooks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.indicator not in INDICATORS:
            raise InvalidRequest(
                f"indicator {self.indicator!r} is unknown; known: {', '.join(INDICATORS)}", param="indicator"
            )
        self._check_target()
        self._check_window()
        self._check_thresholds()
        if self.prompt_class and self.prompt_class not in PROMPT_CLASSES:
            raise InvalidRequest(
                f"prompt_class {self.prompt_class!r} is unknown; known: {', '.join(PROMPT_CLASSES)}",
                param="prompt_class",
            )
        if unknown := [hook for hook in self.hooks if hook not in HOOKS]:
            raise InvalidRequest(f"hook {unknown[0]!r} is unknown; known: {', '.join(HOOKS)}", param="hooks")
        if not 0 <= self.min_events <= 1_000_000:
            raise InvalidRequest(f"min_events is {self.min_events}; use 0 to 1000000", param="min_events")

    @property
    def bad_share(self) -> Fraction:
        """Return the share of requests that may be bad: above 0 and below 1."""
        return 1 - Fraction(self.target_percent) / 100

    def limit_tenths_ms(self, timed: Timed) -> int | None:
        """Return the threshold of a time in tenths of a millisecond; `None` if there is none."""
        threshold = self.thresholds_ms.get(timed)
        return None if threshold is None else int(threshold * 10)

    def _check_target(self) -> None:
        target = self.target_percent
        if not target.is_finite() or not 0 <= target <= _EVERYTHING:
            raise InvalidRequest(
                f"target_percent is {target}; use more than 0 and less than 100", param="target_percent"
            )
        if target == 0:
            raise InvalidRequest(
                "a target of 0 % has no meaning: its error budget can never be used up; set a higher one",
                param="target_percent",
                code="slo_target_promises_nothing",
            )
        if target == _EVERYTHING:
            raise InvalidRequest(
                "a target of 100 % has no error budget: the first bad request breaks it for good; name one below, "
                "such as 99.9",
                param="target_percent",
                code="slo_target_leaves_no_budget",
            )
        exponent = target.as_tuple().exponent
        if isinstance(exponent, int) and -exponent > _MAX_TARGET_DECIMALS:
            raise InvalidRequest(
                f"target_percent is {target}; use at most {_MAX_TARGET_DECIMALS} decimals", param="target_percent"
            )

    def _check_window(self) -> None:
        least, most = WINDOW_DAYS
        if self.window_days > most:
            raise InvalidRequest(
                f"a window of {self.window_days} days is longer than retention: indicators are kept for "
                f"{INDICATORS_KEPT.days} days; use at most {most}, such as 28 or 30",
                param="window_days",
                code="slo_window_beyond_retention",
            )
        if self.window_days < least:
            raise InvalidRequest(
                f"a window of {self.window_days} days is too short; use at least {least}, such as 28",
                param="window_days",
            )

    def _check_thresholds(self) -> None:
        stated = tuple(self.thresholds_ms)
        if unknown := [name for name in stated if name not in TIMED]:
            raise InvalidRequest(
                f"thresholds_ms names {unknown[0]!r}; a threshold is of {', '.join(TIMED)}", param="thresholds_ms"
            )
        wanted: tuple[str, ...] = (self.indicator,) if self.indicator in TIMED else ()
        if self.indicator == "goodput":
            if not stated:
                raise InvalidRequest(
                    "goodput needs a threshold or more: requests that were complete and in time", param="thresholds_ms"
                )
        elif stated != wanted:
            need = f"the threshold of {wanted[0]} alone" if wanted else "no threshold"
            raise InvalidRequest(f"{self.indicator} takes {need} in thresholds_ms", param="thresholds_ms")
        for name, threshold in self.thresholds_ms.items():
            _check_step(name, threshold)


def _check_step(name: str, threshold_ms: Decimal) -> None:
    tenths = threshold_ms * 10
    if tenths in STEPS_TENTHS_MS:
        return
    near = sorted(STEPS_TENTHS_MS, key=lambda step: abs(step - tenths))[:2]
    said = " and ".join(format(Decimal(step) / 10, "f") for step in sorted(near))
    raise InvalidRequest(
        f"{name} of {threshold_ms} ms is not one of the steps that requests are counted by; the nearest are {said}",
        param="thresholds_ms",
        code="slo_threshold_not_kept",
    )


@dataclass(frozen=True, slots=True)
class Counts:
    """The requests that count in a period, and how many of them were bad."""

    total: int = 0
    bad: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.bad <= self.total:
            raise ValueError(f"{self.bad} of {self.total} requests cannot be bad")

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.total + other.total, self.bad + other.bad)

    def good_share(self) -> Fraction | None:
        """Return the share that was good; `None` if nothing counts."""
        return Fraction(self.total - self.bad, self.total) if self.total else None

    def burn_rate(self, objective: Objective) -> Fraction | None:
        """Return how many times faster than allowed the budget is used up; 1 uses it up exactly at the window's end."""
        return Fraction(self.bad, self.total) / objective.bad_share if self.total else None


@dataclass(frozen=True, slots=True)
class ErrorBudget:
    """The error budget of a window. `allowed` is how many requests may be bad, as a fraction, for the count so far."""

    counts: Counts
    allowed: Fraction

    @classmethod
    def of(cls, objective: Objective, counts: Counts) -> "ErrorBudget":
        """Build the error budget from a window's counts."""
        return cls(counts, counts.total * objective.bad_share)

    @property
    def remaining_share(self) -> Fraction | None:
        """Return the remaining share of the budget: 1 untouched, 0 used up, below 0 overspent; `None` if nothing
        counts.
        """
        return 1 - Fraction(self.counts.bad) / self.allowed if self.counts.total else None


@dataclass(frozen=True, slots=True)
class BurnPair:
    """Two windows that must both reach burn rate `factor` for an alert: the long one shows that it matters, the short
    one that it continues.
    """

    factor: Fraction
    long: timedelta
    short: timedelta
    severity: Severity

    @property
    def name(self) -> str:
        """Return the name of the pair for people, such as "14.4x 1h/5m"."""
        return f"{float(self.factor):g}x {span_text(self.long)}/{span_text(self.short)}"


# SRE Workbook, table 5-8 (2 %, 5 % and 10 % of a 30-day budget), with the pair of 1 day that Sloth and Pyrra add.
BURN_PAIRS: Final[tuple[BurnPair, ...]] = (
    BurnPair(Fraction(144, 10), timedelta(hours=1), timedelta(minutes=5), "page"),
    BurnPair(Fraction(6), timedelta(hours=6), timedelta(minutes=30), "page"),
    BurnPair(Fraction(3), timedelta(days=1), timedelta(hours=2), "ticket"),
    BurnPair(Fraction(1), timedelta(days=3), timedelta(hours=6), "ticket"),
)
BURN_WINDOWS: Final[tuple[timedelta, ...]] = tuple(
    sorted({window for pair in BURN_PAIRS for window in (pair.long, pair.short)})
)


def is_burning(objective: Objective, pair: BurnPair, long: Counts, short: Counts) -> bool:
    """Return whether both windows of a pair burn at least as fast as its factor.

    With few requests, a single bad one burns fast: if the long window has fewer than `min_events`, a third of that many
    must be bad.
    """
    rates = (long.burn_rate(objective), short.burn_rate(objective))
    if any(rate is None or rate < pair.factor for rate in rates):
        return False
    return long.total >= objective.min_events or 3 * long.bad >= objective.min_events


def burning_pairs(objective: Objective, counts: Mapping[timedelta, Counts]) -> tuple[BurnPair, ...]:
    """Return the pairs that burn, most urgent first. `counts` is by window; a missing one has no requests."""
    nothing = Counts()
    return tuple(
        pair
        for pair in BURN_PAIRS
        if is_burning(objective, pair, counts.get(pair.long, nothing), counts.get(pair.short, nothing))
    )


def span_text(length: timedelta) -> str:
    """Format a window for people: 5m, 1h, 3d."""
    seconds = int(length.total_seconds())
    for unit, name in ((86_400, "d"), (3_600, "h")):
        if seconds % unit == 0:
            return f"{seconds // unit}{name}"
    return f"{seconds // 60}m"
