"""Alert rules and the fields of a notification: words, bounds and checks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from contracts.errors import InvalidRequest
from contracts.rules.alert_channels import is_http_url
from contracts.rules.objectives import Severity

RuleKind = Literal[
    "budget_threshold",
    "budget_forecast",
    "spend_anomaly",
    "slo_burn",
    "saturation",
    "gpu_fault",
    "telemetry_loss",
    "ledger_mismatch",
    "unpriced_usage",
    "bill_mismatch",
    "price_change",
    "abuse",
]
Event = Literal["firing", "resolved", "test", "report"]

RULE_KINDS: Final[tuple[RuleKind, ...]] = get_args(RuleKind)
# Engines, GPUs and the collector belong to the installation only.
PLATFORM_KINDS: Final = frozenset(
    {"saturation", "gpu_fault", "telemetry_loss", "ledger_mismatch", "bill_mismatch", "price_change"}
)


@dataclass(frozen=True, slots=True)
class NumberSetting:
    """A numeric setting of a rule: its bounds, both inclusive, and its default."""

    default: float
    least: float
    most: float
    meaning: str


_SETTINGS: Final[Mapping[RuleKind, Mapping[str, NumberSetting]]] = {
    "budget_threshold": {},
    "budget_forecast": {
        "at_percent": NumberSetting(
            100, 1, 1000, "percent of the amount, forecast for the period's end at the current rate"
        ),
        "after_percent": NumberSetting(10, 0, 99, "percent of the period that must have passed before forecasting"),
    },
    "spend_anomaly": {"least_usd": NumberSetting(1, 0, 1e9, "smallest difference that raises an alert, in USD")},
    "slo_burn": {},
    "saturation": {
        "kv_percent": NumberSetting(90, 1, 100, "percent of an engine's KV blocks in use, maximum within a minute"),
        "waiting": NumberSetting(8, 1, 1e6, "requests waiting in an engine, mean over a minute"),
        "minutes": NumberSetting(3, 1, 60, "consecutive minutes above the bounds"),
    },
    "gpu_fault": {"temperature_celsius": NumberSetting(90, 30, 130, "GPU temperature from which it is a fault, in °C")},
    "telemetry_loss": {"records": NumberSetting(1, 1, 1e9, "minimum number of records missing in an hour")},
    "ledger_mismatch": {
        "tokens": NumberSetting(1, 1, 1e9, "minimum difference between engine and bills in an hour, in tokens"),
        "unexplained_percent": NumberSetting(
            0.5, 0.01, 100, "minimum percent of a GPU's wall clock in an hour that is unexplained"
        ),
    },
    "unpriced_usage": {"requests": NumberSetting(1, 1, 1e9, "minimum number of requests without a price in a day")},
    "bill_mismatch": {
        "unknown_usd": NumberSetting(1, 0, 1e9, "unexplained USD of a provider's month above which it alerts"),
    },
    "price_change": {
        "least_usd": NumberSetting(0, 0, 1e9, "minimum change in USD a month at last month's usage, up or down"),
    },
    "abuse": {"sightings": NumberSetting(1, 1, 1e9, "minimum number of requests above a policy's limit")},
}
_REPEAT: Final = {
    "repeat_hours": NumberSetting(0, 0, 720, "hours after which an alert that is still open is sent again; 0: never")
}
_THRESHOLDS: Final = "thresholds"
_SLO: Final = "slo"
_OWNER: Final = "owner"
_RUNBOOK: Final = "runbook"
_MAX_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule whose settings have been checked. An empty `tenant` covers all tenants, each evaluated separately.

    `settings` are numbers by name, with defaults filled in; `thresholds` belong to budget_threshold, in percent, empty
    for the budget's own; `slo` belongs to slo_burn, empty for all of the rule's tenant. Raises InvalidRequest naming
    the field.
    """

    id: str
    kind: RuleKind
    tenant: str = ""
    channels: tuple[str, ...] = ()
    settings: Mapping[str, float] = field(default_factory=dict)
    thresholds: tuple[int, ...] = ()
    slo: str = ""
    owner: str = ""  # who handles its alerts
    runbook: str = ""  # URL; empty: the documentation's page for the kind
    budget: str = ""  # of budget_threshold: only this one

    @classmethod
    def of(
        cls, rule_id: str, kind: str, tenant: str, channels: tuple[str, ...], stated: Mapping[str, object]
    ) -> "Rule":
        """Build a rule from its stated settings. Raises InvalidRequest."""
        known = next((name for name in RULE_KINDS if name == kind), None)
        if known is None:
            raise InvalidRequest(f"kind {kind!r} is unknown; known: {', '.join(RULE_KINDS)}", param="kind")
        if tenant and known in PLATFORM_KINDS:
            raise InvalidRequest(f"{kind} is about what all tenants share; leave the tenant out", param="tenant")
        numbers, thresholds, slo = dict[str, float](), tuple[int, ...](), ""
        texts = {_OWNER: "", _RUNBOOK: ""}
        for name, value in stated.items():
            if name == _THRESHOLDS and known == "budget_threshold":
                thresholds = _thresholds(value)
            elif name == _SLO and known == "slo_burn" and isinstance(value, str):
                slo = value
            elif name in texts:
                texts[name] = _text(name, value)
            else:
                numbers[name] = _number(known, name, value)
        filled = {name: numbers.get(name, setting.default) for name, setting in settings_of(known).items()}
        return cls(rule_id, known, tenant, channels, filled, thresholds, slo, **texts)


def settings_of(kind: RuleKind) -> Mapping[str, NumberSetting]:
    """Return the numeric settings of a kind of rule."""
    return {**_SETTINGS[kind], **_REPEAT}


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise InvalidRequest(f"{name} must be text of at most {_MAX_TEXT} characters", param="settings")
    if name == _RUNBOOK and value and not is_http_url(value):
        raise InvalidRequest("runbook must be an http:// or https:// URL", param="settings")
    return value.strip()


def _number(kind: RuleKind, name: str, value: object) -> float:
    setting = settings_of(kind).get(name)
    if setting is None:
        others = [_THRESHOLDS] if kind == "budget_threshold" else [_SLO] if kind == "slo_burn" else []
        known = ", ".join([*settings_of(kind), *others, _OWNER, _RUNBOOK])
        raise InvalidRequest(f"{kind} has no setting {name!r}; known: {known}", param="settings")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{name} is {value!r}, not a number", param="settings")
    if not setting.least <= value <= setting.most:
        raise InvalidRequest(f"{name} is {value:g}; use {setting.least:g} to {setting.most:g}", param="settings")
    return float(value)


def _thresholds(value: object) -> tuple[int, ...]:
    whole = isinstance(value, list | tuple) and all(type(each) is int and 1 <= each <= 1000 for each in value)
    if not whole or not isinstance(value, list | tuple) or list(value) != sorted(set(value)):
        raise InvalidRequest("thresholds are rising percents from 1 to 1000, such as [50, 80, 100]", param="settings")
    return tuple(value)


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition that holds now, for one subject.

    `fingerprint` identifies the subject within its rule and stays the same while the condition holds. `facts` are plain
    values for machines, money as decimal text. `ends_quietly`: its end needs no notification (a budget's next period
    starts).
    """

    fingerprint: str
    summary: str
    severity: Severity = "ticket"
    tenant: str = ""
    team: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    ends_quietly: bool = False
    title: str = ""  # a few words; empty: the summary
    condition: str = ""  # what the rule checks
    value: str = ""  # the measured value
    bound: str = ""  # the bound that it is compared with
    level: int = 0  # of urgency: an increase is sent again
