"""Routes: a name that applications use, and the models it may lead to: in which order, under which conditions, and
where.

A route's own rules are validated here when it is built; how routes, models and pools fit together is validated by
`contracts/serving/route_checks.py`. `gateway/routing/routes` decides which entry a request takes.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, Literal

import msgspec

from contracts.errors import ConfigurationError
from contracts.pricing.money import pico_usd
from contracts.rules.periods import zone_of
from contracts.serving.caching import CachePolicy, cache_policy
from contracts.serving.semantic import SemanticSpec, semantic_spec

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]

Complexity = Literal["simple", "complex"]

DAYS: Final[tuple[Day, ...]] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
ANY_VALUE: Final = "*"  # of a tag
MAX_ENTRIES: Final = 64  # per route
MAX_WEIGHT: Final = 1_000_000
_MINUTES_OF_DAY: Final = 24 * 60
_READ_APART: Final = frozenset(("semantic", "cache"))


def check_share(name: str, value: float | None) -> None:
    """Verify that a share or threshold is within [0, 1]. Raises ConfigurationError; also if it is not a number."""
    if value is not None and not 0 <= value <= 1:
        raise ConfigurationError(f"{name} must be 0 to 1, not {value}")


def _check_usd(name: str, amount: Decimal) -> None:
    if not amount.is_finite() or not 0 < amount <= 1_000_000:
        raise ConfigurationError(f"{name} must be above 0 and at most 1000000 USD, not {amount}")


class Hours(msgspec.Struct, frozen=True):
    """A part of the day, in minutes from midnight; it crosses midnight if it ends before it starts."""

    from_minute: int
    until_minute: int  # exclusive

    @classmethod
    def parse(cls, text: str) -> "Hours":
        """Parse "08:00-18:00". Raises ConfigurationError."""
        start, dash, end = text.partition("-")
        found = [_minute(part.strip()) for part in (start, end)]
        if not dash or None in found or found[0] == found[1]:
            raise ConfigurationError(f"hours are written like 08:00-18:00 or 22:00-06:00, not {text!r}")
        return cls(found[0] or 0, found[1] or 0)

    def holds_at(self, minute: int) -> bool:
        """Return whether a minute of the day (0 to 1439) is within these hours."""
        if self.from_minute < self.until_minute:
            return self.from_minute <= minute < self.until_minute
        return minute >= self.from_minute or minute < self.until_minute


class Condition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """When an entry may be used: all stated conditions must hold. Without any: always.

    `tags` must each have the value; "*" is any. `regions` are those of the gateway that serves the request. `hours` and
    `days` are in `time_zone`. `min_budget_left` (0 to 1) is the minimum remaining share of every budget that covers the
    request with this entry's model. `max_cost_usd` bounds the request's maximum cost there, as reserved.
    `ttft_objective_ms` must be met by the model's recent answers with `slo_headroom` (0 to 1) to spare. `intent` and
    `complexity` are the prompt's classes by the route's `semantic`.
    """

    tenants: tuple[str, ...] = ()
    tags: dict[str, str] = {}
    min_prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None
    regions: tuple[str, ...] = ()
    days: tuple[Day, ...] = ()
    hours: str = ""
    time_zone: str = "UTC"
    min_budget_left: float | None = None
    max_cost_usd: Decimal | None = None
    ttft_objective_ms: int | None = None
    slo_headroom: float | None = None
    intent: str | None = None
    complexity: Complexity | None = None

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a condition can never be met, or has no effect."""
        low, high = self.min_prompt_tokens, self.max_prompt_tokens
        for name, bound in (("min_prompt_tokens", low), ("max_prompt_tokens", high)):
            if bound is not None and bound < 0:
                raise ConfigurationError(f"{name} must be 0 or more, not {bound}")
        if low is not None and high is not None and low > high:
            raise ConfigurationError(f"min_prompt_tokens {low} is above max_prompt_tokens {high}: no prompt fits")
        if self.hours:
            Hours.parse(self.hours)
        elif self.time_zone != "UTC" and not self.days:
            raise ConfigurationError("time_zone has no effect without hours or days")
        zone_of(self.time_zone)
        check_share("min_budget_left", self.min_budget_left)
        check_share("slo_headroom", self.slo_headroom)
        if self.max_cost_usd is not None:
            _check_usd("max_cost_usd", self.max_cost_usd)
        if self.ttft_objective_ms is not None and self.ttft_objective_ms < 1:
            raise ConfigurationError(f"ttft_objective_ms must be 1 or more, not {self.ttft_objective_ms}")
        if self.slo_headroom is not None and self.ttft_objective_ms is None:
            raise ConfigurationError("slo_headroom needs ttft_objective_ms")

    @property
    def max_cost_pico_usd(self) -> int | None:
        """Return `max_cost_usd` in pico-USD."""
        return None if self.max_cost_usd is None else pico_usd(self.max_cost_usd)


ALWAYS: Final = Condition()


class RouteEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of a route: it leads to a model, or to another route.

    Of a model's targets it uses those of `provider` and in `regions`, if these are stated. `label` names it in
    decisions; empty: its model or route.
    """

    model: str = ""
    route: str = ""
    label: str = ""
    weight: int = 1
    provider: str = ""
    regions: tuple[str, ...] = ()
    when: Condition = ALWAYS

    def __post_init__(self) -> None:
        """Raise ConfigurationError if it leads nowhere, or its weight is invalid."""
        if bool(self.model) == bool(self.route):
            raise ConfigurationError("an entry names either a model or a route")
        if not 1 <= self.weight <= MAX_WEIGHT:
            raise ConfigurationError(
                f"the weight of {self.name!r} must be 1 to {MAX_WEIGHT}, not {self.weight}; "
                "to give it no requests, remove it or move it to the fallbacks"
            )

    @property
    def name(self) -> str:
        """Return its name in decisions."""
        return self.label or self.model or self.route


class CascadePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The entries are tried in order until an answer is good enough, within the bounds on latency and cost.

    An answer is not good enough if its mean log-probability (natural logarithm, per token) is below `min_mean_logprob`,
    if it is a refusal, or if it is not the requested JSON.
    """

    min_mean_logprob: float | None = None
    on_refusal: bool = True
    on_schema_failure: bool = True
    latency_budget_ms: int | None = None  # from the request's arrival: no further entry is tried later
    max_cost_usd: Decimal | None = None  # of all answers together

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a bound is invalid."""
        floor = self.min_mean_logprob
        if floor is not None and not -100 <= floor <= 0:
            raise ConfigurationError(f"cascade.min_mean_logprob must be -100 to 0, not {floor}")
        if self.latency_budget_ms is not None and self.latency_budget_ms < 1:
            raise ConfigurationError(f"cascade.latency_budget_ms must be 1 or more, not {self.latency_budget_ms}")
        if self.max_cost_usd is not None:
            _check_usd("cascade.max_cost_usd", self.max_cost_usd)
        if floor is None and not self.on_refusal and not self.on_schema_failure:
            raise ConfigurationError(
                "a cascade needs a condition to escalate: min_mean_logprob, on_refusal or on_schema_failure"
            )

    @property
    def max_cost_pico_usd(self) -> int | None:
        """Return `max_cost_usd` in pico-USD."""
        return None if self.max_cost_usd is None else pico_usd(self.max_cost_usd)


class RouteRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A route's rules in plain data; `RouteSpec` explains them."""

    choose: tuple[RouteEntry, ...]
    fallbacks: tuple[RouteEntry, ...] = ()
    regions: tuple[str, ...] = ()
    latency_budget_ms: int | None = None
    refuses_unmatched: bool = False  # intended: a request that meets no entry's conditions is refused
    cascade: CascadePolicy | None = None


class RouteSpec(RouteRules, frozen=True, kw_only=True):
    """A name that applications ask for, and the models and routes that it leads to.

    Of the entries in `choose` whose conditions are met, one is chosen by weight; with a `cascade`, they are tried in
    order. Then come `fallbacks`, in order. A request never leaves `regions`, if they are stated: neither for a fallback
    or hedge, nor through a cache. Entries that are predicted to take longer than `latency_budget_ms` go last.
    """

    id: str
    semantic: SemanticSpec | None = None  # how conditions on intents and complexity are evaluated
    cache: CachePolicy | None = None  # replaces the models' own
    created_unix: int = 0

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a route leads nowhere, or contradicts itself."""
        about = f"route {self.id!r}"
        if not self.choose:
            raise ConfigurationError("choose has no entries, so the route is a dead end", about=about)
        if len(self.entries) > MAX_ENTRIES:
            raise ConfigurationError(f"it has {len(self.entries)} entries; the maximum is {MAX_ENTRIES}", about=about)
        names = [entry.name for entry in self.choose]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigurationError(f"choose has two entries {twice!r}; give them labels", about=about)
        if self.latency_budget_ms is not None and self.latency_budget_ms < 1:
            raise ConfigurationError(f"latency_budget_ms must be 1 or more, not {self.latency_budget_ms}", about=about)
        if all(entry.when != ALWAYS for entry in self.entries) and not self.refuses_unmatched:
            raise ConfigurationError(
                "it is a dead end for requests that meet none of its conditions; add one without conditions, or set "
                "refuses_unmatched: true",
                about=about,
            )
        _check_semantic(about, self.entries, self.semantic)

    @property
    def entries(self) -> tuple[RouteEntry, ...]:
        """Return all entries."""
        return self.choose + self.fallbacks


def route_spec(name: str, rules: Mapping[str, object], created_unix: int = 0) -> RouteSpec:
    """Build a route from plain data. Raises ConfigurationError, naming the field."""
    try:
        semantic = semantic_spec(_mapping(rules, "semantic"))
        cache = cache_policy(_mapping(rules, "cache"))
        stated = msgspec.convert({field: rules[field] for field in rules.keys() - _READ_APART}, RouteRules)
        plain = {field: getattr(stated, field) for field in stated.__struct_fields__}
        return RouteSpec(id=name, semantic=semantic, cache=cache, created_unix=created_unix, **plain)
    except msgspec.ValidationError as error:
        raise ConfigurationError(str(error), about=f"route {name!r}") from error
    except ConfigurationError as error:
        raise ConfigurationError(error.fault, about=f"route {name!r}") from error


def _check_semantic(about: str, entries: tuple[RouteEntry, ...], semantic: SemanticSpec | None) -> None:
    """Verify that conditions on the prompt match what the route can classify."""
    known = () if semantic is None else semantic.names
    for entry in entries:
        intent = entry.when.intent
        if intent is not None and intent not in known:
            raise ConfigurationError(
                f"{entry.name!r} needs the intent {intent!r}; the route knows {', '.join(known) or 'none'}",
                about=about,
            )
        if entry.when.complexity is not None and (semantic is None or semantic.complexity is None):
            raise ConfigurationError(
                f"{entry.name!r} has a condition on complexity, which needs semantic.complexity", about=about
            )
    if semantic is not None and all(entry.when.intent or entry.when.complexity for entry in entries):
        raise ConfigurationError(
            "it is a dead end for prompts that cannot be classified; add an entry without an intent", about=about
        )


def _mapping(rules: Mapping[str, object], name: str) -> Mapping[str, object] | None:
    given = rules.get(name)
    if given is not None and not isinstance(given, Mapping):
        raise ConfigurationError(f"{name} must be an object")
    return given


def _minute(text: str) -> int | None:
    hour, colon, minute = text.partition(":")
    is_clock = colon and hour.isdecimal() and minute.isdecimal() and len(hour) <= 2 and len(minute) == 2
    if not is_clock or int(minute) > 59:
        return None
    found = int(hour) * 60 + int(minute)
    return found if found < _MINUTES_OF_DAY else None
