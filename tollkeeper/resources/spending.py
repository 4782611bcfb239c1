"""Resources of prices, rates, limits and budgets."""

from importlib import import_module
from typing import Any, Final

from contracts.pricing.unit_prices import ANY_UNIT
from contracts.rules.limits import BUDGET_LEVELS, LEVELS, PERIODS, WINDOWS
from contracts.rules.metrics import KIND_OF_WORD
from tollkeeper.resources.resource import Column, Field, Resource, Row, of
from tollkeeper.resources.shared import (
    SUBJECT,
    TENANT,
    VALID_FROM,
    VALID_TO,
    WHEN_UNPRICED,
    ends_now,
    validity,
    when_away,
    word,
)

PRICES: Final = Resource(
    name="prices",
    noun="price card",
    about=f"Price cards: what requests to a model cost, per million tokens or per {ANY_UNIT}.",
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
            verbs=("create",),
        ),
        Field(
            "usd_per_unit",
            f"USD per {ANY_UNIT}, such as image=0.04 or image.hd=0.08; repeat for more.",
            "pairs",
            "--unit-price",
            metavar="UNIT=USD",
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
        Field(
            "tiers", "Prices for requests above a number of input tokens, as YAML or @FILE.", "json", verbs=("create",)
        ),
        Field("service_tiers", "Prices by service tier, as YAML or @FILE.", "json", verbs=("create",)),
        Field("provider", "Only for targets of this provider.", verbs=("create",)),
        Field("region", "Only for targets in this region.", verbs=("create",)),
        Field("tenant", "Only for this tenant.", verbs=("create",)),
        VALID_FROM,
        *VALID_TO,
        Field("replaces", "Version of a card to end when this one starts.", verbs=("create",)),
        Field(
            "effect",
            "If this ends a card at a past time: preview the effect on recorded costs, or confirm it.",
            choices=("preview", "confirmed"),
            is_stored=False,
            verbs=("create", "set"),
        ),
    ),
    columns=(
        of("version"),
        of("model"),
        of("provider"),
        of("region"),
        of("tenant_id"),
        Column("USD per 1M tokens or unit", word("card_prices")),
        Column("valid", validity),
    ),
    examples=(
        "tollkeeper prices create gpt-x/1 --model gpt-x --price input_text=2.50 --price output_text=10",
        "tollkeeper prices create whisper/1 --model whisper --unit-price second=0.0001",
        "tollkeeper prices list",
        "tollkeeper prices end gpt-x/1 --valid-to now",
    ),
    verbs=("create", "list", "show", "set"),
    help={
        "create": "Create a price card. Cards cannot be edited: replace one by a new one, or end it.",
        "set": "End a price card.",
    },
    body=ends_now,
    set_name="end",
    module="tollkeeper.prices",
)


STANDARD_COSTS: Final = Resource(
    name="standard-costs",
    noun="standard cost card",
    about="Standard cost cards: what models on your own GPUs cost, in USD per million tokens.",
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
        VALID_FROM,
        *VALID_TO,
        Field(
            "effect",
            "If this ends a card at a past time: preview the effect on recorded costs, or confirm it.",
            choices=("preview", "confirmed"),
            is_stored=False,
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
        Column("valid", validity),
    ),
    examples=(
        "tollkeeper standard-costs create small/1 --model small --input 0.02 --cached-input 0.002 --output 0.10",
        "tollkeeper standard-costs list",
        "tollkeeper standard-costs show small/1",
        "tollkeeper standard-costs end small/1 --valid-to now",
    ),
    verbs=("create", "list", "show", "set"),
    help={"set": "End a standard cost card."},
    body=ends_now,
    set_name="end",
)


RATES: Final = Resource(
    name="rates",
    noun="rate",
    about="Cost rates: prices of GPU hours, exchange rates, tenants' invoice terms (discount, free amount, minimum).",
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
        VALID_FROM,
        *VALID_TO,
    ),
    columns=(of("version"), of("kind"), of("subject"), of("rate"), Column("valid", validity)),
    examples=(
        "tollkeeper rates create h100/1 --kind gpu --value ownership=owned --value usd_per_hour=2.10",
        "tollkeeper rates create eur/1 --kind currency --subject EUR --value units_per_usd=0.92",
        "tollkeeper rates list",
        "tollkeeper rates show h100/1",
        "tollkeeper rates end h100/1 --valid-to now",
    ),
    verbs=("create", "list", "show", "set"),
    help={"set": "End a rate."},
    body=ends_now,
    set_name="end",
)


def _limit_body(body: dict[str, Any], stored: Row | None) -> dict[str, Any]:
    metric = body.get("metric") or (stored or {}).get("metric")
    amount = body.pop("amount", None)
    if amount is not None:
        is_whole = amount.removeprefix("-").isdecimal() and len(amount) < 40
        body |= {"amount_usd": amount} if metric == "usd" else {"amount": int(amount) if is_whole else amount}
    return body


LIMITS: Final = Resource(
    name="limits",
    noun="limit",
    about="Rate and concurrency limits.",
    path="/v1/tenants/{tenant}/limits",
    parents=(TENANT,),
    positional_parent=True,
    is_key_given=False,
    fields=(
        Field(
            "metric",
            "What is counted.",
            choices=tuple(KIND_OF_WORD),
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
            "Length of the window; leave it out for concurrency and for level conversation.",
            choices=WINDOWS,
            verbs=("create",),
        ),
        Field(
            "level",
            "Who shares it (default tenant).",
            choices=LEVELS,
            verbs=("create",),
        ),
        SUBJECT,
        Field("model", "Count only this model (default: all models together).", verbs=("create",)),
        when_away("share"),
        WHEN_UNPRICED,
    ),
    columns=(
        of("id"),
        of("tenant_id"),
        Column("limit", word("limit_allows")),
        Column("applies to", word("scope_text")),
    ),
    examples=(
        "tollkeeper limits create --tenant acme --metric usd --window hour --amount 0.50 --level key --subject '*'",
        "tollkeeper limits list --tenant acme",
        "tollkeeper limits show lim_01a2",
        "tollkeeper limits set lim_01a2 --amount 30000",
        "tollkeeper limits delete lim_01a2",
    ),
    body=_limit_body,
    described=word("limit_line"),
    help={
        "create": "Create a limit. Gateways enforce it within a second.",
        "set": "Change a limit's amount; its current count stays. For another scope or window create another limit.",
        "delete": "Delete a limit and its count.",
    },
)


def _budget_body(body: dict[str, Any], stored: Row | None) -> dict[str, Any]:
    if stored is None and ("amount_usd" in body) == ("gpu_milliseconds" in body):
        error = import_module("contracts.errors").ConfigurationError
        raise error("a budget has one amount; give either --usd or --gpu-ms")
    return body


BUDGETS: Final = Resource(
    name="budgets",
    noun="budget",
    about="Budgets of money and of GPU time.",
    path="/v1/tenants/{tenant}/budgets",
    parents=(TENANT,),
    positional_parent=True,
    is_key_given=False,
    fields=(
        Field(
            "period",
            "Calendar period in the tenant's time zone.",
            choices=PERIODS,
            is_required=True,
            verbs=("create",),
        ),
        Field("amount_usd", "Amount in USD, such as 50 or 0.25.", flag="--usd"),
        Field("gpu_milliseconds", "Amount in GPU milliseconds, instead of --usd.", "whole", "--gpu-ms"),
        Field(
            "level",
            "Who shares it (default tenant).",
            choices=BUDGET_LEVELS,
            verbs=("create",),
        ),
        SUBJECT,
        Field("model", "Count only this model (default: all models together).", verbs=("create",)),
        Field("is_hard", "Refuse requests beyond it, or only notify (default hard).", "flag", "--hard/--soft"),
        Field("thresholds", "Percent at which to notify; repeat for more, in rising order.", "percents", "--threshold"),
        Field("channels", "Alert channel to notify at thresholds; repeat for more.", "list", "--channel"),
        Field("webhook_url", "URL that gets a signed POST at each threshold; '' for none.", flag="--webhook"),
        Field("starts_at", "Start, such as 2027-01-31T00:00:00Z (default now).", verbs=("create",)),
        Field("ends_at", "End, such as 2027-12-31T00:00:00Z (default: never)."),
        when_away("refuse"),
        WHEN_UNPRICED,
    ),
    columns=(
        of("id"),
        of("tenant_id"),
        Column("budget", word("budget_allows")),
        Column("applies to", word("scope_text")),
        Column("thresholds", lambda row: " ".join(f"{percent}%" for percent in row["thresholds"])),
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
    described=word("budget_line"),
    help={
        "create": "Create a budget. Gateways enforce it within a second; earlier spending in the period counts.",
        "show": "Show a budget's state: spent, reserved, remaining, forecast, thresholds passed.",
        "set": "Change a budget; its spending stays. --threshold replaces all thresholds.",
        "delete": "Delete a budget with its spending count and thresholds.",
    },
    module="tollkeeper.budgets",
)
