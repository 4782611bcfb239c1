"""Types of limits and budgets: whom a rule covers, what it counts, over which time, and how much is allowed.

Amounts are integers in the metric's base unit: requests, tokens, slots, GPU nanoseconds, pico-USD. Counting is in
`gateway/limits`, storage in `backends/control` and the YAML file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from contracts.access.identity import Identity
from contracts.errors import ConfigurationError
from contracts.rules.metrics import METRICS, Metric

BudgetLevel = Literal["tenant", "team", "project", "key", "user", "tag"]
Level = Literal[BudgetLevel, "conversation"]
Window = Literal["second", "minute", "hour", "day"]
Period = Literal["day", "week", "month", "total"]
WhenAway = Literal["share", "refuse"]
WhenUnpriced = Literal["refuse", "allow"]

LEVELS: Final[tuple[Level, ...]] = get_args(Level)
WINDOWS: Final[tuple[Window, ...]] = get_args(Window)
PERIODS: Final[tuple[Period, ...]] = get_args(Period)
BUDGET_LEVELS: Final[tuple[BudgetLevel, ...]] = get_args(BudgetLevel)
MAX_AMOUNT: Final = 10**18 - 1  # maximum of Decimal(18, 12) in pico-USD; 31 years in nanoseconds
EACH: Final = "*"  # as a subject: each one has its own counter


@dataclass(frozen=True, slots=True)
class Scope:
    """Whom a rule covers. Every rule belongs to one tenant.

    `subject` by level: tenant and conversation: empty or "*"; team: its id; project: "team/project"; key: its id; user:
    as the caller states it; tag: "name=value". "*" (for a tag "name=*") counts each one separately. `model` empty: all
    models together.
    """

    tenant: str
    level: Level
    subject: str = ""
    model: str = ""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ConfigurationError(f"level {self.level!r} is unknown; known: {', '.join(LEVELS)}", param="level")
        if self.level in ("tenant", "conversation"):
            if self.subject not in ("", EACH):
                raise ConfigurationError(f"level {self.level} takes no subject, not {self.subject!r}", param="subject")
        elif not self.subject:
            raise ConfigurationError(
                f"level {self.level} needs a subject: whom it counts, or '*' for each one", param="subject"
            )
        if self.level == "project" and self.subject != EACH and self.subject.count("/") != 1:
            raise ConfigurationError(f"a project is named 'team/project', not {self.subject!r}", param="subject")
        if self.level == "tag" and not self.subject.partition("=")[2]:
            raise ConfigurationError(f"a tag is named 'name=value' or 'name=*', not {self.subject!r}", param="subject")

    @property
    def is_fixed(self) -> bool:
        """Return whether a key and a model alone determine the subject, so that it can be computed once."""
        return self.level in ("tenant", "team", "project", "key")

    def subject_of(self, who: Identity, model: str, conversation: str = "") -> str | None:
        """Return the subject of a request of `who` under this scope; `None` if it is not covered.

        Requests with the same subject share a counter. Empty for the tenant as a whole.
        """
        if who.tenant != self.tenant or (self.model and self.model != model):
            return None
        if self.level == "tenant":
            return ""
        if self.level == "conversation":
            return f"{who.key_id}/{conversation}" if conversation else None
        if self.level == "tag":
            name, _, wanted = self.subject.partition("=")
            value = who.tags.get(name)
            return None if value is None or wanted not in (EACH, value) else f"{name}={value}"
        found = _stated(self.level, who)
        return found if found and self.subject in (EACH, found) else None


def _stated(level: Level, who: Identity) -> str:
    if level == "team":
        return who.team
    if level == "project":
        return f"{who.team}/{who.project}" if who.project else ""
    return who.key_id if level == "key" else who.user


@dataclass(frozen=True, slots=True)
class LimitSpec:
    """How much of a metric a scope may use in any window of that length, at any start.

    `window` is `None` for concurrency (counted while a request runs) and for conversations (counted as a whole).
    `when_away` states what is allowed while the shared counters are unreachable: the gateway's share, or nothing.
    """

    id: str
    scope: Scope
    metric: Metric
    amount: int
    window: Window | None = None
    when_away: WhenAway = "share"
    when_unpriced: WhenUnpriced = "refuse"

    def __post_init__(self) -> None:
        about = f"limit {self.id!r}"
        _check_amount(about, self.amount, least=0)
        if self.metric not in METRICS:
            raise ConfigurationError(
                f"metric {self.metric!r} is unknown; {', '.join(METRICS)}", about=about, param="metric"
            )
        if self.metric == "concurrency" and self.window is not None:
            raise ConfigurationError("concurrency takes no window; leave it out", about=about, param="window")
        if self.scope.level == "conversation":
            if self.window is not None or self.metric == "concurrency":
                raise ConfigurationError(
                    "a conversation is counted as a whole; leave window out", about=about, param="window"
                )
        elif self.metric != "concurrency" and self.window is None:
            raise ConfigurationError(
                f"{self.metric} needs a window: second, minute, hour or day", about=about, param="window"
            )

    @property
    def is_windowed(self) -> bool:
        """Return whether charges leave the window again."""
        return self.window is not None


@dataclass(frozen=True, slots=True)
class BudgetAdjustment:
    """What a recount has added to a subject's spending of a budget in one period, in the budget's base unit."""

    subject: str
    period_start_ns: int  # Unix
    amount: int


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """How much money or GPU time a scope may use in a calendar period of its tenant's time zone.

    A hard budget is never overspent; a soft one only notifies. Each of `thresholds` (percent) notifies once per period.
    The budget counts from `starts_at_ns` until `ends_at_ns` (Unix), if they are set. `adjustments` are what recounts
    have added to the gateways' counts.
    """

    id: str
    scope: Scope
    metric: Metric  # "pico_usd" or "gpu_ns"
    amount: int
    period: Period
    is_hard: bool = True
    thresholds: tuple[int, ...] = ()
    time_zone: str = "UTC"
    starts_at_ns: int | None = None
    ends_at_ns: int | None = None
    webhook_url: str = ""
    when_away: WhenAway = "refuse"
    when_unpriced: WhenUnpriced = "refuse"
    adjustments: tuple[BudgetAdjustment, ...] = ()

    def __post_init__(self) -> None:
        about = f"budget {self.id!r}"
        _check_amount(about, self.amount, least=1)
        if self.metric not in ("pico_usd", "gpu_ns"):
            raise ConfigurationError(
                f"a budget is in money or GPU time, not {self.metric}", about=about, param="metric"
            )
        if self.scope.level == "conversation":
            raise ConfigurationError(
                "for conversations set a limit with level `conversation`", about=about, param="level"
            )
        for threshold in self.thresholds:
            if not 1 <= threshold <= 1000:
                raise ConfigurationError(
                    f"a threshold is 1 to 1000 percent, not {threshold}", about=about, param="thresholds"
                )
        if list(self.thresholds) != sorted(set(self.thresholds)):
            raise ConfigurationError("thresholds must rise, each once", about=about, param="thresholds")
        if self.starts_at_ns is not None and self.ends_at_ns is not None and self.ends_at_ns <= self.starts_at_ns:
            raise ConfigurationError("it ends before it begins", about=about, param="ends_at")

    @property
    def is_windowed(self) -> bool:
        """Return False: charges stay for the whole period."""
        return False

    def adjusted(self, subject: str, period_start_ns: int) -> int:
        """Return what recounts have added to one subject's spending in one period; below 0 for a refund."""
        if not self.adjustments:
            return 0
        wanted = (subject, period_start_ns)
        return sum([one.amount for one in self.adjustments if (one.subject, one.period_start_ns) == wanted])


Rule = LimitSpec | BudgetSpec


def _check_amount(about: str, amount: int, least: int) -> None:
    if not least <= amount <= MAX_AMOUNT:
        raise ConfigurationError(
            f"the amount must be {least} to {MAX_AMOUNT}, not {amount}", about=about, param="amount"
        )


PriorityClass = Literal["interactive", "standard", "batch"]
PRIORITY_CLASSES: Final[tuple[PriorityClass, ...]] = get_args(PriorityClass)  # the first one is served first


@dataclass(frozen=True, slots=True)
class TenantSpec:
    """A tenant's settings in the data plane. `weight` is its share under contention."""

    id: str
    weight: int = 1
    time_zone: str = "UTC"
    is_active: bool = True
    keeps_content: bool = False  # its prompts and answers are stored, redacted
    audits_requests: bool = False  # each of its requests has an entry in the audit log

    def __post_init__(self) -> None:
        if not 1 <= self.weight <= 1000:
            raise ConfigurationError(f"tenant {self.id!r}: weight must be 1 to 1000, not {self.weight}")


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """How requests wait in front of a pool. `None` if nothing is set.

    `max_in_flight` and `max_tokens_in_flight` (prompt and reserved output together) bound what the pool gets at once;
    if engine hosts report their own capacity, that replaces the latter. The tenant's caps are shares of these (0 to 1).
    A prompt of more than `long_prompt_tokens` goes through one of `long_prompt_slots`. A request that waited longer
    than its class's `deadline_seconds` is shed, the lowest class first.
    """

    max_in_flight: int | None = None
    max_tokens_in_flight: int | None = None
    max_waiting: int = 10_000
    tenant_max_in_flight: float = 1.0
    tenant_max_tokens: float = 1.0
    ageing_seconds: float = 10.0  # waiting this long raises a request by one class
    long_prompt_tokens: int | None = None
    long_prompt_slots: int = 1
    deadline_seconds: Mapping[PriorityClass, float] = field(default_factory=dict)
    input_weight: float = 1.0  # of an input token in the tenant's counter (VTC, OSDI'24, section 4)
    output_weight: float = 2.0

    def __post_init__(self) -> None:
        for name in ("max_in_flight", "max_tokens_in_flight", "max_waiting", "long_prompt_tokens", "long_prompt_slots"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"queue: {name} must be at least 1, not {value}")
        for name in ("tenant_max_in_flight", "tenant_max_tokens"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigurationError(f"queue: {name} is a share above 0 and at most 1, not {getattr(self, name)}")
        for name in ("ageing_seconds", "input_weight", "output_weight"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"queue: {name} must be above 0, not {getattr(self, name)}")
        for name, seconds in self.deadline_seconds.items():
            if name not in PRIORITY_CLASSES or not seconds > 0:
                raise ConfigurationError(f"queue: deadline_seconds.{name} is {seconds}; name a class, above 0 seconds")
