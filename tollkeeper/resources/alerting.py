"""Resources of alerting: objectives, alert channels, alert rules."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, get_args

from contracts.rules.alert_channels import CHANNEL_KINDS, ReportEvery
from contracts.rules.alerts import RULE_KINDS
from contracts.rules.objectives import HOOKS, INDICATORS
from tollkeeper.resources.resource import Column, Field, Resource, Row, active, moment, of
from tollkeeper.resources.shared import word


def _slo_body(row: Row) -> dict[str, Any]:
    same = ("model", "route", "indicator", "thresholds_ms", "target_percent", "window_days", "min_events", "hooks")
    return {
        **{name: row[name] for name in same},
        "tenant": row["tenant_id"],
        "prompt_class": row["prompt_class"] or None,
    }


SLOS: Final = Resource(
    name="slos",
    noun="objective",
    about="Service level objectives and error budgets.",
    path="/v1/slos",
    fields=(
        Field(
            "indicator",
            "What is measured.",
            choices=INDICATORS,
            is_required=True,
            verbs=("create",),
        ),
        Field(
            "indicator",
            "What is measured.",
            choices=INDICATORS,
            verbs=("set",),
        ),
        Field(
            "target_percent",
            "Percent of requests that must be good, such as 99.9.",
            flag="--target",
            is_required=True,
            verbs=("create",),
        ),
        Field("target_percent", "Percent of requests that must be good.", flag="--target", verbs=("set",)),
        Field("thresholds_ms.ttft", "Maximum time to the first token, in ms.", flag="--ttft-ms"),
        Field(
            "thresholds_ms.inter_token",
            "Maximum inter-token latency (p95 of a request), in ms.",
            flag="--inter-token-ms",
        ),
        Field("thresholds_ms.end_to_end", "Maximum time to the end of the answer, in ms.", flag="--end-to-end-ms"),
        Field("tenant", "Only this tenant's requests (default: all)."),
        Field("model", "Only this model's requests (default: all)."),
        Field("route", "Only this route's requests (default: all)."),
        Field(
            "prompt_class",
            "Only prompts of this length.",
            choices=("short", "medium", "long", "very_long"),
            is_null_if_empty=True,
        ),
        Field("window_days", "Window in days, 1 to 85 (default 28).", "whole"),
        Field("min_events", "Below this number of requests, alert only if a third are bad (default 20).", "whole"),
        Field(
            "hooks",
            "Action while the error budget burns fast; repeat for both. freeze_canaries: route entries labelled canary "
            "get no requests. shed_batch: requests of class batch are refused.",
            "list",
            "--hook",
            choices=HOOKS,
        ),
    ),
    columns=(of("id"), Column("objective", word("objective")), Column("applies to", word("objective_scope"))),
    examples=(
        "tollkeeper slos create chat-ttft --indicator ttft --ttft-ms 500 --target 99",
        "tollkeeper slos list",
        "tollkeeper slos show chat-ttft",
        "tollkeeper slos set chat-ttft --target 99.5",
        "tollkeeper slos delete chat-ttft",
    ),
    replaces=_slo_body,
    described=word("objective"),
    help={
        "create": "Create an objective. Requests already recorded are judged at once.",
        "delete": "Delete an objective. Its counts stay.",
    },
    aliases=("slo",),
    module="tollkeeper.slo",
)


CHANNELS: Final = Resource(
    name="channels",
    noun="channel",
    about="Alert channels: where alerts are sent.",
    path="/v1/alert-channels",
    fields=(
        Field(
            "kind",
            "Kind of channel.",
            choices=CHANNEL_KINDS,
            is_required=True,
            verbs=("create",),
        ),
        Field("address", "URL, e-mail address or routing key (default: asked for).", "secret", verbs=("create",)),
        Field("address", "URL, e-mail address or routing key.", verbs=("set",)),
        Field(
            "severities",
            "Send alerts of this severity only, page or ticket; repeat for more (default: both).",
            "list",
            "--severity",
        ),
        Field("tenants", "Send alerts of this tenant only; repeat for more (default: all).", "list", "--only-tenant"),
        Field(
            "report",
            "Send it a cost report every day, week or month (default: never).",
            choices=tuple(filter(None, get_args(ReportEvery))),
        ),
        Field(
            "tenant",
            "The tenant it belongs to (default: none; it belongs to the whole installation).",
            verbs=("create",),
        ),
    ),
    columns=(
        of("id"),
        of("kind"),
        of("tenant_id"),
        of("address"),
        Column("receives", word("channel_receives")),
        moment(),
    ),
    examples=(
        "tollkeeper channels create ops --kind slack",
        "tollkeeper channels create oncall --kind pagerduty --severity page",
        "tollkeeper channels create mail --kind email --address ops@acme.example --report week",
        "tollkeeper channels list",
        "tollkeeper channels show ops",
        "tollkeeper channels set mail --address sre@acme.example",
        "tollkeeper channels delete ops",
    ),
    help={"delete": "Delete a channel. Refused while a rule names it."},
    next="tollkeeper alerts test {key}",
)


def _with_numbers(body: dict[str, Any]) -> dict[str, Any]:
    """Return a rule's body with its NAME=NUMBER settings as numbers. Raises ConfigurationError."""
    settings = body.get("settings")
    if isinstance(settings, Mapping):
        number = import_module("tollkeeper.resources.words").finite_number
        body["settings"] = {
            name: number(name, value) if isinstance(value, str) and name != "slo" else value
            for name, value in settings.items()
        }
    return body


ALERT_RULES: Final = Resource(
    name="alert-rules",
    noun="alert rule",
    about="Alert rules: conditions that raise alerts.",
    path="/v1/alert-rules",
    fields=(
        Field(
            "kind",
            "Kind of condition, described in docs/alerts.md.",
            choices=RULE_KINDS,
            is_required=True,
            verbs=("create",),
        ),
        Field("channels", "Channel to notify; repeat for more.", "list", "--channel"),
        Field(
            "settings",
            "Setting of this kind of condition, such as at_percent=90 for budget_forecast; repeat for more. "
            "docs/alerts.md lists them.",
            "pairs",
            "--set",
            metavar="NAME=NUMBER",
        ),
        Field("settings.thresholds", "Percent of a budget; repeat for more.", "percents", "--threshold"),
        Field("settings.slo", "For slo_burn: only this objective.", flag="--slo"),
        Field("tenant", "Only for this tenant (default: all tenants, each evaluated separately).", verbs=("create",)),
        Field("is_active", "Evaluate the rule, or not.", "flag", "--active/--inactive"),
    ),
    columns=(of("id"), of("kind"), of("tenant_id"), of("settings"), of("channels"), active()),
    examples=(
        "tollkeeper alert-rules create money --kind budget_threshold --threshold 80 --channel ops",
        "tollkeeper alert-rules list",
        "tollkeeper alert-rules show money",
        "tollkeeper alert-rules set money --inactive",
        "tollkeeper alert-rules delete money",
    ),
    help={"delete": "Delete an alert rule. Its open alerts end without a notification."},
    body=lambda body, stored: _with_numbers(body),
)
