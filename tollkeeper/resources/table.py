"""The table of resources: each kind of object of the control plane, declared once.

A new kind is a `Resource` here: its command group, its help, its place in shell completion and in the golden files
follow. If it is to be configuration as well, it also needs a row in `gateway/control/configuration/table.py`.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from contracts.rules.alerts import CHANNEL_KINDS
from tollkeeper.resources.resource import Column, Field, Parent, Resource, Row, active, moment, of, shown

_TENANT: Final = Parent("tenant", "tenant", "/v1/tenants")
_TEAM: Final = Parent("team", "team", "/v1/tenants/{tenant}/teams")
_POOL: Final = Parent("pool", "pool", "/v1/pools")

_NAME: Final = Field("name", "Display name.")
_VALID_FROM: Final = Field("valid_from", "Start, such as 2027-01-31T00:00:00Z (default: always).", verbs=("create",))
_WHEN_AWAY: Final = Field(
    "when_away",
    "While Redis is away: allow each gateway its share, or refuse (default: limits share, budgets refuse).",
    choices=("share", "refuse"),
)
_WHEN_UNPRICED: Final = Field(
    "when_unpriced", "For a model without a price, if money is counted.", choices=("refuse", "allow")
)
_SCOPES: Final = (
    Field("models", "Model or route it may use; repeat for more (default: all).", "list", "--model"),
    Field("endpoints", "Endpoint it may use, such as chat.completions; repeat for more.", "list", "--endpoint"),
    Field("addresses", "Network it may come from, such as 10.0.0.0/8; repeat for more.", "list", "--address"),
    Field("priority", "Highest priority class it may ask for.", choices=("interactive", "standard", "batch")),
    Field("max_reasoning_effort", "Highest reasoning effort it may ask for, such as low."),
    Field("max_thinking_tokens", "Maximum reasoning tokens of one answer.", "whole"),
)


def _word(function: str) -> Callable[[Row], str]:
    """Return a function of `words`, which is loaded when a row is shown."""
    return lambda row: str(getattr(import_module("tollkeeper.resources.words"), function)(row))


def _semantic_hint(route: Row) -> str:
    if not route["rules"].get("semantic"):
        return ""
    return f"{LEARNING} `tollkeeper routes show {route['id']}` tells when it is ready."


LEARNING: Final = (
    "The gateway is learning its examples. Until then the default answers, with the reply header "
    "x-tollkeeper-route-state: learning."
)


def _budget_body(body: dict[str, Any], stored: Row | None) -> dict[str, Any]:
    if stored is None and ("amount_usd" in body) == ("gpu_milliseconds" in body):
        error = import_module("contracts.errors").ConfigurationError
        raise error("a budget has one amount; give either --usd or --gpu-ms")
    return body


def _limit_body(body: dict[str, Any], stored: Row | None) -> dict[str, Any]:
    metric = body.get("metric") or (stored or {}).get("metric")
    amount = body.pop("amount", None)
    if amount is not None:
        is_whole = amount.removeprefix("-").isdecimal() and len(amount) < 40
        body |= {"amount_usd": amount} if metric == "usd" else {"amount": int(amount) if is_whole else amount}
    return body


def _slo_body(row: Row) -> dict[str, Any]:
    same = ("model", "route", "indicator", "thresholds_ms", "target_percent", "window_days", "min_events", "hooks")
    return {
        **{name: row[name] for name in same},
        "tenant": row["tenant_id"],
        "prompt_class": row["prompt_class"] or None,
    }


def _named(body: dict[str, Any], stored: Row | None) -> dict[str, Any]:
    return body if stored is not None else {"name": body.get("id"), **body}


def _ends_now(body: dict[str, Any], stored: Row | None) -> dict[str, Any]:
    if stored is not None and body.get("valid_to") == "now":
        from datetime import UTC, datetime  # here, as nothing else needs it

        body["valid_to"] = datetime.now(UTC).isoformat()
    return body


def _period(row: Row) -> str:
    begins = str(row["valid_from"])[:10]
    return f"{'always' if begins == '1970-01-01' else begins} to {str(row['valid_to'] or 'open')[:10]}"


def _rules(noun: str, example: str, *, required: bool = False) -> Field:
    return Field(
        "rules", f"YAML or JSON file with the {noun}'s rules, such as {example}.", "file", is_required=required
    )


_TENANTS: Final = Resource(
    name="tenants",
    noun="tenant",
    about="Organisations: the outermost payers.",
    path="/v1/tenants",
    fields=(
        Field("name", "Display name (default: the id)."),
        Field("time_zone", "IANA time zone of its budgets' calendar (default UTC)."),
        Field("weight", "Share under contention relative to other tenants, 1 to 1000 (default 1).", "whole"),
        Field("is_active", "Accept its keys, or refuse them all.", "flag", "--active/--inactive", verbs=("set",)),
        Field(
            "keeps_content", "Keep its prompts and answers, redacted.", "flag", "--content/--no-content", verbs=("set",)
        ),
        Field(
            "audits_requests", "Write its requests into the audit log.", "flag", "--audit/--no-audit", verbs=("set",)
        ),
    ),
    columns=(of("id"), of("name"), of("time_zone"), active(), moment()),
    examples=(
        "tollkeeper tenants create acme --name 'Acme GmbH' --time-zone Europe/Berlin",
        "tollkeeper tenants list",
        "tollkeeper tenants show acme",
        "tollkeeper tenants set acme --weight 3",
        "tollkeeper tenants delete acme",
    ),
    body=_named,
    help={"delete": "Deactivate a tenant: its keys are refused within a second. Its records stay."},
    deleted="deactivated",
    next="tollkeeper keys create --tenant {key} --name NAME",
    module="tollkeeper.tenant_commands",
)

_TEAMS: Final = Resource(
    name="teams",
    noun="team",
    about="Groups within a tenant, for keys, limits, budgets and reports.",
    path="/v1/tenants/{tenant}/teams",
    parents=(_TENANT,),
    fields=(Field("name", "Display name (default: the id)."),),
    columns=(of("id"), of("tenant_id"), of("name"), moment()),
    body=_named,
    help={"delete": "Delete a team and its projects. Refused while keys of the team are in use."},
    examples=(
        "tollkeeper teams create web --tenant acme --name 'Web shop'",
        "tollkeeper teams list --tenant acme",
        "tollkeeper teams show web",
        "tollkeeper teams set web --name 'Web and app'",
        "tollkeeper teams delete web --tenant acme",
    ),
    next="tollkeeper keys create --tenant {tenant} --team {key} --name NAME",
)

_PROJECTS: Final = Resource(
    name="projects",
    noun="project",
    about="Projects of a team, for keys, limits and reports.",
    path="/v1/tenants/{tenant}/teams/{team}/projects",
    parents=(_TENANT, _TEAM),
    fields=(Field("name", "Display name (default: the id)."),),
    columns=(of("id"), of("tenant_id"), of("team_id"), of("name"), moment()),
    body=_named,
    help={"delete": "Delete a project. Refused while keys of the project are in use."},
    examples=(
        "tollkeeper projects create search --tenant acme --team web",
        "tollkeeper projects list --tenant acme",
        "tollkeeper projects show search",
        "tollkeeper projects set search --name 'Product search'",
        "tollkeeper projects delete search",
    ),
)

_KEYS: Final = Resource(
    name="keys",
    noun="key",
    about="Keys of applications.",
    path="/v1/tenants/{tenant}/keys",
    parents=(_TENANT,),
    is_key_given=False,
    fields=(
        Field("name", "Purpose, such as the application's name.", is_required=True, verbs=("create",)),
        Field("name", "Purpose, such as the application's name.", verbs=("set",)),
        Field("team", "Team it belongs to.", verbs=("create",)),
        Field("project", "Project it belongs to; needs --team.", verbs=("create",)),
        Field("expires_at", "When it expires, such as 2027-01-31T00:00:00Z (default: never)."),
        Field(
            "is_service_account",
            "Whether a program or a person uses it.",
            "flag",
            "--service-account/--person",
            verbs=("create",),
        ),
        Field("budget_usd", "Hard budget of this key in USD, such as 25; needs --budget-period.", verbs=("create",)),
        Field(
            "budget_period",
            "Period of that budget.",
            choices=("day", "week", "month", "total"),
            verbs=("create",),
        ),
        *_SCOPES,
    ),
    columns=(
        of("id"),
        of("name"),
        of("tenant_id"),
        of("team_id"),
        Column("hint", lambda row: f"…{row['hint']}"),
        Column("status", _word("key_status")),
        moment(),
    ),
    examples=(
        "tollkeeper keys create --tenant acme --team web --name shop",
        "tollkeeper keys create --tenant acme --name ci --budget-usd 25 --budget-period month",
        "tollkeeper keys list --tenant acme",
        "tollkeeper keys show key_01a2",
        "tollkeeper keys set key_01a2 --model gpt-4o-mini --expires-at 2027-01-31T00:00:00Z",
        "tollkeeper keys delete key_01a2",
    ),
    help={
        "create": "Create a key. Its secret is printed once, alone on stdout.",
        "delete": "Revoke a key on every gateway within a second. This cannot be undone.",
    },
    secret="secret",
    deleted="revoked",
    module="tollkeeper.keys",
)

_POOLS: Final = Resource(
    name="pools",
    noun="pool",
    about="Groups of interchangeable targets that serve models.",
    path="/v1/pools",
    fields=(
        Field(
            "policy",
            "How a target is chosen (default cost).",
            choices=("cost", "least_outstanding", "peak_ewma", "round_robin", "consistent_hash", "random"),
        ),
        Field("region", "Region of its targets, such as eu-central; routes can be pinned to it."),
        Field("queue", "Queue settings as YAML or @FILE, such as '{max_in_flight: 32}'.", "json", verbs=("set",)),
        Field("failures", "Failure settings as YAML or @FILE, such as '{retries: 2}'.", "json", verbs=("set",)),
    ),
    columns=(of("id"), of("policy"), of("region"), of("queue"), of("failures"), moment()),
    examples=(
        "tollkeeper pools create small --policy least_outstanding",
        "tollkeeper pools list",
        "tollkeeper pools show small",
        "tollkeeper pools set small --queue '{max_in_flight: 32}'",
        "tollkeeper pools delete small",
    ),
    help={"delete": "Delete a pool and its targets. Refused while it serves a model."},
    next="tollkeeper targets create NAME --pool {key} --kind openai_http --url URL",
)

_TARGETS: Final = Resource(
    name="targets",
    noun="target",
    about="Servers that pools send requests to: engine hosts, OpenAI-compatible servers, hosted providers.",
    path="/v1/pools/{pool}/targets",
    parents=(_POOL,),
    fields=(
        Field(
            "kind",
            "Kind of target.",
            choices=("openai_http", "engine", "litellm", "scripted"),
            is_required=True,
            verbs=("create",),
        ),
        Field("kind", "Kind of target.", choices=("openai_http", "engine", "litellm", "scripted"), verbs=("set",)),
        Field("url", "Base URL up to and with /v1; an engine host's unix:///PATH.sock."),
        Field("model", "Model name at the target (default: the name that applications use)."),
        Field("provider", "Provider, such as openai; for prices and playbooks."),
        Field("key_ref", "Reference to its key: env:NAME, file:/PATH or stored:NAME.", flag="--key-ref"),
        Field("weight", "Share relative to other targets, 1 to 1000 (default 1).", "whole"),
        Field("settings", "Further settings of its kind, as YAML or @FILE.", "json"),
    ),
    columns=(
        of("id"),
        of("pool_id"),
        of("kind"),
        of("url"),
        of("model"),
        of("provider"),
        of("key_ref", "key"),
        of("weight"),
    ),
    examples=(
        "tollkeeper targets create gpu-1 --pool small --kind openai_http --url http://10.0.0.5:8000/v1",
        "tollkeeper targets list --pool small",
        "tollkeeper targets show gpu-1",
        "tollkeeper targets set gpu-1 --weight 2",
        "tollkeeper targets delete gpu-1 --pool small",
    ),
    help={"delete": "Remove a target from its pool. The last one of a pool that serves a model stays."},
)

_MODELS: Final = Resource(
    name="models",
    noun="model",
    about="Names that applications ask for, and the pools that serve them.",
    path="/v1/models",
    key_help="Name that applications ask for.",
    fields=(
        Field("pool", "Pool that serves it. The pool must have a target.", is_required=True, verbs=("create",)),
        Field("pool", "Pool that serves it.", verbs=("set",)),
        Field("description", "Description."),
        Field("context_tokens", "Context length in tokens (default: the target's own).", "whole"),
        Field("defaults", "Sampling defaults as YAML or @FILE, such as '{temperature: 0.2}'.", "json"),
        Field("pinned", "Sampling values that callers cannot change, as YAML or @FILE.", "json"),
        Field("cache", "Response cache settings as YAML or @FILE, such as '{ttl_seconds: 600}'.", "json"),
        Field("is_active", "Offer it to applications, or withdraw it.", "flag", "--active/--inactive", verbs=("set",)),
    ),
    columns=(of("id"), of("pool_id"), of("context_tokens", "context"), active(), of("description"), moment()),
    examples=(
        "tollkeeper models create assistant --pool small --context-tokens 32768",
        "tollkeeper models list",
        "tollkeeper models show assistant",
        "tollkeeper models set assistant --defaults '{temperature: 0.2}'",
        "tollkeeper models delete assistant",
    ),
    next="tollkeeper prices create {key}/1 --model {key} --price input_text=0.15 --price output_text=0.60",
)

_ROUTES: Final = Resource(
    name="routes",
    noun="route",
    about="Names that lead to one of several models, by weight and conditions.",
    path="/v1/routes",
    key_help="Name that applications ask for.",
    fields=(
        _rules("route", "choose: [{model: NAME}]"),
        Field("is_active", "Offer it to applications, or withdraw it.", "flag", "--active/--inactive", verbs=("set",)),
    ),
    columns=(of("id"), active(), Column("leads to", _word("leads_to"))),
    examples=(
        "tollkeeper routes create assistant assistant.yaml",
        "tollkeeper routes list",
        "tollkeeper routes show assistant",
        "tollkeeper routes set assistant assistant.yaml",
        "tollkeeper routes delete assistant",
    ),
    is_upsert=True,
    described=_word("leads_to"),
    hint=_semantic_hint,
    help={
        "set": "Create a route, or replace its rules. Gateways follow within a second.",
        "delete": "Delete a route; its models stay.",
    },
    module="tollkeeper.routes",
)

_ROLLOUTS: Final = Resource(
    name="rollouts",
    noun="rollout",
    about="Candidate models that take a growing share of a route.",
    path="/v1/rollouts",
    fields=(
        Field("route", "Route that applications ask for.", is_required=True, verbs=("create",)),
        Field("incumbent", "Model that answers there now.", is_required=True, verbs=("create",)),
        Field("candidate", "Model to try.", is_required=True, verbs=("create",)),
        Field(
            "rules",
            "YAML or JSON file with steps, guards, shadow, tenants (default: 1, 5, 25, 100 %).",
            "file",
            verbs=("create",),
        ),
    ),
    columns=(
        of("id"),
        of("route"),
        of("incumbent"),
        of("candidate"),
        of("state"),
        of("percent"),
        of("reason"),
    ),
    examples=(
        "tollkeeper rollouts create v2 --route assistant --incumbent small --candidate large",
        "tollkeeper rollouts list",
        "tollkeeper rollouts show v2",
        "tollkeeper rollouts delete v2",
    ),
    verbs=("create", "list", "show", "delete"),
    help={
        "create": "Start a rollout with its first step. Gateways follow within a second.",
        "delete": "Delete a rollout that has ended; its records stay.",
    },
    described=_word("rollout_line"),
    aliases=("rollout",),
    module="tollkeeper.rollout",
)

_PRICES: Final = Resource(
    name="prices",
    noun="price card",
    about="Price cards: what requests to a model cost, per million tokens.",
    path="/v1/prices",
    key="version",
    key_help="Version, such as gpt-x/2027-01; recorded with every request that it prices.",
    fields=(
        Field("model", "Model that it prices.", is_required=True, verbs=("create",)),
        Field(
            "usd_per_mtok",
            "USD per million tokens of a kind, such as input_text=0.15; repeat: output_text, cache_read_text, ...",
            "pairs",
            "--price",
            metavar="KIND=USD",
            is_required=True,
            verbs=("create",),
        ),
        Field(
            "batch_usd_per_mtok",
            "Price of a kind in batches; repeat for more.",
            "pairs",
            "--batch-price",
            metavar="KIND=USD",
            verbs=("create",),
        ),
        Field("usd_per_request", "Fee per request in USD (default 0).", verbs=("create",)),
        Field("tiers", "Prices above a number of input tokens, as YAML or @FILE.", "json", verbs=("create",)),
        Field("service_tiers", "Prices by service tier, as YAML or @FILE.", "json", verbs=("create",)),
        Field("provider", "Only for targets of this provider.", verbs=("create",)),
        Field("tenant", "Only for this tenant.", verbs=("create",)),
        _VALID_FROM,
        Field("valid_to", "End, exclusive, or now; required by set.", verbs=("create", "set")),
        Field("replaces", "Version of the card that ends where this one starts (default: now).", verbs=("create",)),
        Field(
            "effect",
            "For an end in the past: show the effect, or confirm it.",
            choices=("preview", "confirmed"),
            verbs=("create", "set"),
        ),
    ),
    columns=(
        of("version"),
        of("model"),
        of("provider"),
        of("tenant_id"),
        Column("USD per 1M tokens", _word("card_prices")),
        Column("valid", _period),
    ),
    examples=(
        "tollkeeper prices create gpt-x/1 --model gpt-x --price input_text=2.50 --price output_text=10",
        "tollkeeper prices list",
        "tollkeeper prices set gpt-x/1 --valid-to now",
    ),
    verbs=("create", "list", "show", "set"),
    help={
        "create": "Create a price card. It is never edited: a new one replaces it, or it ends.",
        "set": "End a price card.",
    },
    body=_ends_now,
    module="tollkeeper.prices",
)

_STANDARD_COSTS: Final = Resource(
    name="standard-costs",
    noun="standard cost card",
    about="Standard cost cards: what models of your own cost you, per million tokens.",
    path="/v1/standard-costs",
    key="version",
    key_help="Version, such as small/2027-01; recorded with every request that it prices.",
    fields=(
        Field("model", "Model that it prices.", is_required=True, verbs=("create",)),
        Field(
            "input_usd_per_mtok", "USD per million input tokens.", flag="--input", is_required=True, verbs=("create",)
        ),
        Field(
            "cached_input_usd_per_mtok",
            "USD per million cached input tokens.",
            flag="--cached-input",
            is_required=True,
            verbs=("create",),
        ),
        Field(
            "output_usd_per_mtok",
            "USD per million output tokens.",
            flag="--output",
            is_required=True,
            verbs=("create",),
        ),
        Field("batch_input_usd_per_mtok", "Input price of batches.", flag="--batch-input", verbs=("create",)),
        Field("batch_output_usd_per_mtok", "Output price of batches.", flag="--batch-output", verbs=("create",)),
        _VALID_FROM,
        Field("valid_to", "End, exclusive, or now; required by set."),
        Field(
            "effect",
            "For an end in the past: show the effect, or confirm it.",
            choices=("preview", "confirmed"),
            verbs=("set",),
        ),
    ),
    columns=(
        of("version"),
        of("model"),
        of("input_usd_per_mtok", "input"),
        of("cached_input_usd_per_mtok", "cached"),
        of("output_usd_per_mtok", "output"),
        of("origin"),
        Column("valid", _period),
    ),
    examples=(
        "tollkeeper standard-costs create small/1 --model small --input 0.02 --cached-input 0.002 --output 0.10",
        "tollkeeper standard-costs list",
        "tollkeeper standard-costs show small/1",
        "tollkeeper standard-costs set small/1 --valid-to now",
    ),
    verbs=("create", "list", "show", "set"),
    help={"set": "End a standard cost card."},
    body=_ends_now,
)

_RATES: Final = Resource(
    name="rates",
    noun="rate",
    about="Cost rates: what a GPU hour costs, what a currency is worth, a tenant's terms.",
    path="/v1/rates",
    key="version",
    key_help="Version, such as h100/2027-01; recorded with every result.",
    fields=(
        Field("kind", "Kind of rate.", choices=("gpu", "currency", "terms"), is_required=True, verbs=("create",)),
        Field("subject", "GPU's UUID or model (default: every GPU), currency code, or tenant.", verbs=("create",)),
        Field(
            "rate",
            "Value, such as usd_per_hour=2.10 and ownership=owned (gpu), units_per_usd=0.92 (currency), "
            "percent=-10 (terms); repeat for more.",
            "pairs",
            "--value",
            metavar="NAME=NUMBER",
            is_required=True,
            verbs=("create",),
        ),
        _VALID_FROM,
        Field("valid_to", "End, exclusive, or now; required by set."),
    ),
    columns=(of("version"), of("kind"), of("subject"), of("rate"), Column("valid", _period)),
    examples=(
        "tollkeeper rates create h100/1 --kind gpu --value ownership=owned --value usd_per_hour=2.10",
        "tollkeeper rates create eur/1 --kind currency --subject EUR --value units_per_usd=0.92",
        "tollkeeper rates list",
        "tollkeeper rates show h100/1",
        "tollkeeper rates set h100/1 --valid-to now",
    ),
    verbs=("create", "list", "show", "set"),
    help={"set": "End a rate."},
    body=_ends_now,
)

_LIMITS: Final = Resource(
    name="limits",
    noun="limit",
    about="Rate and concurrency limits.",
    path="/v1/tenants/{tenant}/limits",
    parents=(_TENANT,),
    positional_parent=True,
    is_key_given=False,
    fields=(
        Field(
            "metric",
            "What is counted.",
            choices=("requests", "input_tokens", "output_tokens", "tokens", "concurrency", "gpu_ms", "usd"),
            is_required=True,
            verbs=("create",),
        ),
        Field(
            "amount",
            "Amount in the metric's unit; usd takes decimals, such as 0.50.",
            is_required=True,
            verbs=("create",),
        ),
        Field("amount", "Amount in the metric's unit.", verbs=("set",)),
        Field(
            "window",
            "Length of the window; none for concurrency and level conversation.",
            choices=("second", "minute", "hour", "day"),
            verbs=("create",),
        ),
        Field(
            "level",
            "Who shares it (default tenant).",
            choices=("tenant", "team", "project", "key", "user", "tag", "conversation"),
            verbs=("create",),
        ),
        Field(
            "subject", "Whom: TEAM, TEAM/PROJECT, key id, user, or NAME=VALUE of a tag; '*': each.", verbs=("create",)
        ),
        Field("model", "Count only this model (default: all together).", verbs=("create",)),
        _WHEN_AWAY,
        _WHEN_UNPRICED,
    ),
    columns=(of("id"), of("tenant_id"), Column("allows", _word("limit_allows")), Column("whom", _word("scope_text"))),
    examples=(
        "tollkeeper limits create --tenant acme --metric usd --window hour --amount 0.50 --level key --subject '*'",
        "tollkeeper limits list --tenant acme",
        "tollkeeper limits show lim_01a2",
        "tollkeeper limits set lim_01a2 --amount 30000",
        "tollkeeper limits delete lim_01a2",
    ),
    body=_limit_body,
    described=_word("limit_line"),
    help={
        "create": "Create a limit. Gateways enforce it within a second.",
        "set": "Change a limit's amount; its current count stays. For another scope or window create another limit.",
        "delete": "Delete a limit and its count.",
    },
)

_BUDGETS: Final = Resource(
    name="budgets",
    noun="budget",
    about="Budgets of money and of GPU time.",
    path="/v1/tenants/{tenant}/budgets",
    parents=(_TENANT,),
    positional_parent=True,
    is_key_given=False,
    fields=(
        Field(
            "period",
            "Calendar period in the tenant's time zone.",
            choices=("day", "week", "month", "total"),
            is_required=True,
            verbs=("create",),
        ),
        Field("amount_usd", "Amount in USD, such as 50 or 0.25.", flag="--usd"),
        Field("gpu_milliseconds", "Amount in GPU milliseconds, instead of --usd.", "whole", "--gpu-ms"),
        Field(
            "level",
            "Who shares it (default tenant).",
            choices=("tenant", "team", "project", "key", "user", "tag"),
            verbs=("create",),
        ),
        Field(
            "subject", "Whom: TEAM, TEAM/PROJECT, key id, user, or NAME=VALUE of a tag; '*': each.", verbs=("create",)
        ),
        Field("model", "Count only this model (default: all together).", verbs=("create",)),
        Field("is_hard", "Refuse requests beyond it, or only notify (default hard).", "flag", "--hard/--soft"),
        Field("thresholds", "Percent at which to notify; repeat for more, rising.", "percents", "--threshold"),
        Field("channels", "Alert channel to notify at thresholds; repeat for more.", "list", "--channel"),
        Field("webhook_url", "URL that gets a signed POST at each threshold; '': none.", flag="--webhook"),
        Field("starts_at", "Start, such as 2027-01-31T00:00:00Z (default now).", verbs=("create",)),
        Field("ends_at", "End, such as 2027-12-31T00:00:00Z (default: none)."),
        _WHEN_AWAY,
        _WHEN_UNPRICED,
    ),
    columns=(
        of("id"),
        of("tenant_id"),
        Column("allows", _word("budget_allows")),
        Column("whom", _word("scope_text")),
        Column("notifies at", lambda row: " ".join(f"{percent}%" for percent in row["thresholds"])),
        of("channels"),
    ),
    examples=(
        "tollkeeper budgets create --tenant acme --usd 50 --period month --threshold 80 --channel ops",
        "tollkeeper budgets list --tenant acme",
        "tollkeeper budgets show bud_01a2",
        "tollkeeper budgets set bud_01a2 --usd 80",
        "tollkeeper budgets delete bud_01a2",
    ),
    body=_budget_body,
    described=_word("budget_line"),
    help={
        "create": "Create a budget. Gateways enforce it within a second; the period's earlier spending is added.",
        "show": "Show a budget's state: spent, reserved, remaining, forecast, thresholds passed.",
        "set": "Change a budget; its spending stays. --threshold replaces all thresholds.",
        "delete": "Delete a budget with its count and passed thresholds.",
    },
    module="tollkeeper.budgets",
)

_TOKENS: Final = Resource(
    name="tokens",
    noun="token",
    about="Admin tokens: who may use the control plane's API, with which role.",
    path="/v1/tokens",
    is_key_given=False,
    fields=(
        Field("name", "Name of its owner; shown in the audit log.", is_required=True, verbs=("create",)),
        Field(
            "role",
            "Role.",
            choices=("owner", "admin", "finance", "team_lead", "directory"),
            is_required=True,
            verbs=("create",),
        ),
        Field("tenant", "Restrict it to this tenant (default: all).", verbs=("create",)),
        Field("team", "Restrict it to this team of the tenant; for team leads.", verbs=("create",)),
        Field("expires_at", "When it expires, such as 2027-01-31T00:00:00Z.", verbs=("create",)),
    ),
    columns=(of("id"), of("name"), Column("role", _word("role_of")), Column("status", _word("token_status")), moment()),
    examples=(
        "tollkeeper tokens create --name ci --role admin --expires-at 2027-01-31T00:00:00Z",
        "tollkeeper tokens list",
        "tollkeeper tokens show tok_01a2",
        "tollkeeper tokens delete tok_01a2",
    ),
    verbs=("create", "list", "show", "delete"),
    help={
        "create": "Create an admin token. Its secret is printed once, alone on stdout.",
        "delete": "Revoke an admin token and those made with it. This cannot be undone.",
    },
    secret="secret",
    deleted="revoked",
)

_ISSUERS: Final = Resource(
    name="issuers",
    noun="issuer",
    about="Identity providers whose tokens applications send instead of keys.",
    path="/v1/issuers",
    fields=(
        Field("issuer", "The tokens' iss, exactly.", is_required=True, verbs=("create",)),
        Field("issuer", "The tokens' iss, exactly.", verbs=("set",)),
        Field("audience", "Must be in the tokens' aud.", is_required=True, verbs=("create",)),
        Field("audience", "Must be in the tokens' aud.", verbs=("set",)),
        Field("keys_url", "URL of its signing keys (JWKS; default: by discovery)."),
        Field("algorithms", "Signature algorithm (default RS256 and ES256); repeat for more.", "list", "--algorithm"),
        Field("tenant", "Tenant that pays for all its tokens.", is_null_if_empty=True),
        Field("tenant_claim", "Claim that names the tenant, instead of --tenant."),
        Field("team_claim", "Claim that names the team."),
        Field("project_claim", "Claim that names the project."),
        Field("user_claim", "Claim that names the end user (default sub)."),
        *_SCOPES,
    ),
    columns=(
        of("id"),
        of("issuer"),
        of("audience"),
        Column("tenant", lambda row: row["tenant_id"] or f"claim {row['tenant_claim']}"),
        of("scopes"),
    ),
    examples=(
        "tollkeeper issuers create sso --issuer https://login.acme.example --audience llm --tenant acme",
        "tollkeeper issuers list",
        "tollkeeper issuers show sso",
        "tollkeeper issuers set sso --team-claim groups",
        "tollkeeper issuers delete sso",
    ),
    help={"delete": "Delete an issuer: gateways refuse its tokens within a second."},
)

_PLAYBOOKS: Final = Resource(
    name="playbooks",
    noun="playbook",
    about="What happens while a whole provider is down.",
    path="/v1/playbooks",
    key="provider",
    key_help="Provider, as targets name it.",
    fields=(
        Field("rules.then", "Provider that answers instead, best first; repeat for more.", "list", "--then"),
        Field("rules.outage", "Circuit breaker settings of an outage, as YAML or @FILE.", "json", "--outage"),
    ),
    columns=(of("provider"), Column("then", lambda row: shown(row["rules"].get("then"))), moment()),
    examples=(
        "tollkeeper playbooks create openai --then azure",
        "tollkeeper playbooks list",
        "tollkeeper playbooks show openai",
        "tollkeeper playbooks set openai --then azure --then anthropic",
        "tollkeeper playbooks delete openai",
    ),
    body=lambda body, stored: body if stored else {"provider": body["provider"], **body.get("rules", {})},
)

_GUARDRAILS: Final = Resource(
    name="guardrails",
    noun="guardrail",
    about="Policies that inspect requests and answers, and block, redact or flag what they find.",
    path="/v1/guardrails",
    key_help="Name: a-z, 0-9, '.', '_' and -; cannot be changed.",
    fields=(_rules("guardrail", "stages: [{name: cards, detector: pii, action: redact}]", required=True),),
    columns=(
        of("id"),
        Column("tenants", lambda row: ", ".join(row["rules"].get("tenants") or ["all"])),
        Column("routes", lambda row: ", ".join(row["rules"].get("routes") or ["all"])),
        Column("stages", _word("stages")),
    ),
    examples=(
        "tollkeeper guardrails create no-cards no-cards.yaml",
        "tollkeeper guardrails list",
        "tollkeeper guardrails show no-cards",
        "tollkeeper guardrails set no-cards no-cards.yaml",
        "tollkeeper guardrails delete no-cards",
    ),
    is_upsert=True,
    described=_word("stages"),
    post_key="name",
    help={"set": "Create a guardrail, or replace its rules. Gateways follow within a second."},
    module="tollkeeper.guardrails",
)

_MCP_SERVERS: Final = Resource(
    name="mcp-servers",
    noun="MCP server",
    about="MCP servers whose tools the gateway offers at /mcp.",
    path="/v1/mcp-servers",
    key_help="Name: a-z, 0-9 and -; cannot be changed.",
    fields=(_rules("MCP server", "url: https://mcp.example.com/mcp, price_usd: 0.001", required=True),),
    columns=(
        of("id"),
        Column("url", lambda row: row["rules"].get("url", "")),
        Column("default", lambda row: row["rules"].get("default", "")),
        Column("price_usd", lambda row: row["rules"].get("price_usd") or "-"),
    ),
    examples=(
        "tollkeeper mcp-servers create weather weather.yaml",
        "tollkeeper mcp-servers list",
        "tollkeeper mcp-servers show weather",
        "tollkeeper mcp-servers set weather weather.yaml",
        "tollkeeper mcp-servers delete weather",
    ),
    is_upsert=True,
    post_key="name",
    help={"set": "Create an MCP server, or replace its rules. Gateways follow within a second."},
)

_TOOL_RULES: Final = Resource(
    name="tool-rules",
    noun="tool rule",
    about="Rules that allow or deny tools of MCP servers to tenants, teams, projects and keys.",
    path="/v1/tool-rules",
    key_help="Name: a-z, 0-9, '.', '_' and -; cannot be changed.",
    fields=(_rules("tool rule", "effect: deny, tools: [weather__*], tenant: acme", required=True),),
    columns=(
        of("id"),
        Column("effect", lambda row: row["rules"].get("effect", "")),
        Column("tools", lambda row: ", ".join(row["rules"].get("tools") or [])),
        Column("tenant", lambda row: row["rules"].get("tenant") or "all"),
        Column("key", lambda row: row["rules"].get("key") or "all"),
    ),
    examples=(
        "tollkeeper tool-rules create read-only read-only.yaml",
        "tollkeeper tool-rules list",
        "tollkeeper tool-rules show read-only",
        "tollkeeper tool-rules set read-only read-only.yaml",
        "tollkeeper tool-rules delete read-only",
    ),
    is_upsert=True,
    post_key="name",
    help={"set": "Create a tool rule, or replace its rules. Gateways follow within a second."},
)

_SLOS: Final = Resource(
    name="slos",
    noun="objective",
    about="Service level objectives and error budgets.",
    path="/v1/slos",
    fields=(
        Field(
            "indicator",
            "What is measured.",
            choices=("ttft", "inter_token", "end_to_end", "availability", "goodput"),
            is_required=True,
            verbs=("create",),
        ),
        Field(
            "indicator",
            "What is measured.",
            choices=("ttft", "inter_token", "end_to_end", "availability", "goodput"),
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
            "Maximum time between tokens (p95 of a request), in ms.",
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
        Field("window_days", "Window in days, 28 or 30 (default 28).", "whole"),
        Field("min_events", "Below this number of requests, alert only if a third are bad (default 20).", "whole"),
        Field(
            "hooks",
            "What to hold back while it burns; repeat.",
            "list",
            "--hook",
            choices=("freeze_canaries", "shed_batch"),
        ),
    ),
    columns=(of("id"), Column("promise", _word("promise")), Column("about", _word("about"))),
    examples=(
        "tollkeeper slos create chat-ttft --indicator ttft --ttft-ms 500 --target 99",
        "tollkeeper slos list",
        "tollkeeper slos show chat-ttft",
        "tollkeeper slos set chat-ttft --target 99.5",
        "tollkeeper slos delete chat-ttft",
    ),
    replaces=_slo_body,
    described=_word("promise"),
    help={
        "create": "Create an objective. Requests already recorded are judged at once.",
        "delete": "Delete an objective. Its counts stay.",
    },
    aliases=("slo",),
    module="tollkeeper.slo",
)

_CHANNELS: Final = Resource(
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
        Field("address", "URL, e-mail address or routing key (default: you are asked).", "secret", verbs=("create",)),
        Field("address", "URL, e-mail address or routing key.", verbs=("set",)),
        Field(
            "severities", "Severity it takes, page or ticket; repeat for more (default: both).", "list", "--severity"
        ),
        Field("tenants", "Tenant whose alerts it takes; repeat for more (default: all).", "list", "--only-tenant"),
        Field(
            "report",
            "Send it a cost report every day, week or month (default: never).",
            choices=("day", "week", "month"),
        ),
        Field("tenant", "Only for this tenant's alerts (default: the platform's).", verbs=("create",)),
    ),
    columns=(
        of("id"),
        of("kind"),
        of("tenant_id"),
        of("address"),
        Column("takes", _word("channel_takes")),
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

_ALERT_RULES: Final = Resource(
    name="alert-rules",
    noun="rule",
    about="Alert rules: conditions that raise alerts.",
    path="/v1/alert-rules",
    fields=(
        Field(
            "kind",
            "Kind of condition, such as budget_threshold or slo_burn; docs/alerts.md lists all.",
            is_required=True,
            verbs=("create",),
        ),
        Field("channels", "Channel to notify; repeat for more.", "list", "--channel"),
        Field("settings", "Setting of its kind; repeat for more.", "pairs", "--set", metavar="NAME=NUMBER"),
        Field("settings.thresholds", "Percent of a budget; repeat for more.", "percents", "--threshold"),
        Field("settings.slo", "For slo_burn: only this objective.", flag="--slo"),
        Field("tenant", "Only for this tenant (default: all tenants, each on its own).", verbs=("create",)),
        Field("is_active", "Evaluate it, or not.", "flag", "--active/--inactive"),
    ),
    columns=(of("id"), of("kind"), of("tenant_id"), of("settings"), of("channels"), active()),
    examples=(
        "tollkeeper alert-rules create money --kind budget_threshold --threshold 80 --channel ops",
        "tollkeeper alert-rules list",
        "tollkeeper alert-rules show money",
        "tollkeeper alert-rules set money --inactive",
        "tollkeeper alert-rules delete money",
    ),
    help={"delete": "Delete a rule. Its open alerts end without a notification."},
    body=lambda body, stored: _with_numbers(body),
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


RESOURCES: Final[tuple[Resource, ...]] = (
    *(_TENANTS, _TEAMS, _PROJECTS, _KEYS, _TOKENS, _ISSUERS),
    *(_POOLS, _TARGETS, _MODELS, _ROUTES, _ROLLOUTS, _PLAYBOOKS, _GUARDRAILS),
    *(_MCP_SERVERS, _TOOL_RULES),
    *(_PRICES, _STANDARD_COSTS, _RATES, _LIMITS, _BUDGETS),
    *(_SLOS, _CHANNELS, _ALERT_RULES),
)
BY_NAME: Final = {resource.name: resource for resource in RESOURCES}
