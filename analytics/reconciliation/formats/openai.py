"""OpenAI's usage and costs API, as JSON pages or as CSV from the dashboard.

Usage: https://api.openai.com/v1/organization/usage/completions (and embeddings), grouped by model, api_key_id,
project_id, batch, service_tier. Costs: /v1/organization/costs, grouped by line_item, project_id, api_key_id.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from analytics.reconciliation.formats.pages import results
from analytics.reconciliation.formats.reading import (
    OneCurrency,
    OneMonth,
    Problems,
    csv_header,
    csv_rows,
    read_amount,
    read_count,
    read_day,
    refuse_unknown,
    require_columns,
    shown,
)
from analytics.reconciliation.formats.words import describe
from analytics.reconciliation.lines import CREDIT, FEE, TAX, BillLine, ReadBill
from contracts.pricing.service_tiers import BATCH, tier_name

PROVIDER: Final = "openai"
USAGE_OBJECTS: Final = ("organization.usage.completions.result", "organization.usage.embeddings.result")
COSTS_OBJECT: Final = "organization.costs.result"
_TOKENS: Final = {
    "input_tokens": "input_text",
    "input_cached_tokens": "cache_read_text",
    "input_audio_tokens": "input_audio",
    "output_tokens": "output_text",
    "output_audio_tokens": "output_audio",
}
_NAMES: Final = (
    *("object", "start_time", "end_time", "start_time_iso", "end_time_iso", "num_model_requests", "model", "batch"),
    *("project_id", "project_name", "user_id", "user_email", "api_key_id", "api_key_name", "service_tier"),
    *("organization_id", "organization_name", "api_key_redacted"),
)
# Parts of the counts above, which are not added again.
_PARTS: Final = (
    *("input_uncached_tokens", "input_text_tokens", "output_text_tokens", "input_cached_text_tokens"),
    *("input_cached_audio_tokens", "input_cached_image_tokens", "input_image_tokens", "output_image_tokens"),
    "input_cache_write_tokens",
)
_USAGE_KNOWN: Final = frozenset({*_TOKENS, *_NAMES, *_PARTS})
_COSTS_KNOWN: Final = frozenset(
    {*_NAMES, "amount", "amount_value", "amount_currency", "line_item", "quantity", "quantity_unit", "api_source"}
)
_REMEDY: Final = "export the report again, grouped by model, project and API key"
_CREDITS: Final = ("credit", "discount", "refund", "adjustment")


def read_usage(text: str, month: str) -> ReadBill:
    """Read a usage report. Raise UnreadableBill."""
    problems, lines = Problems(), []
    months = OneMonth(month, problems)
    for number, row in _rows(text, _USAGE_KNOWN, ("input_tokens", "model", "start_time"), problems):
        kind = row.get("object")
        if kind and kind not in USAGE_OBJECTS:
            problems.add(number, "object", f"{shown(kind)} has no tokens; export completions and embeddings")
            continue
        day = read_day(row.get("start_time") or row.get("start_time_iso"))
        counts: dict[str, int] = {}
        for name, leaf in _TOKENS.items():
            value = row.get(name)
            count = 0 if value in (None, "") else read_count(value)
            if count is None:
                problems.add(number, name, f"{shown(value)} is no count of tokens, which is 0 or more")
            else:
                counts[leaf] = count
        if not months.see(number, "start_time", day, row.get("start_time")) or len(counts) < len(_TOKENS):
            continue
        if counts["cache_read_text"] > counts["input_text"]:
            problems.add(number, "input_cached_tokens", "more tokens are cached than there are input tokens")
            continue
        counts["input_text"] -= counts["cache_read_text"]
        model = str(row.get("model") or "")
        if not model:
            problems.add(number, "model", f"it is empty; {_REMEDY}")
            continue
        tier = BATCH if str(row.get("batch")).lower() == "true" else tier_name(str(row.get("service_tier") or ""))
        for leaf, count in counts.items():
            if count:
                lines.append(BillLine(number, day or "", model, _keys(row), tier, leaf, count, None))
    problems.raise_any()
    return ReadBill("openai_usage", PROVIDER, months.month, "", lines)


def read_costs(text: str, month: str) -> ReadBill:
    """Read a costs report. Raise UnreadableBill."""
    problems, lines = Problems(), []
    months, currency = OneMonth(month, problems), OneCurrency(problems)
    for number, row in _rows(text, _COSTS_KNOWN, ("amount_value", "line_item", "start_time"), problems):
        day = read_day(row.get("start_time") or row.get("start_time_iso"))
        stated = row.get("amount")
        if isinstance(stated, Mapping):
            value, name = stated.get("value"), stated.get("currency")
        else:
            value, name = row.get("amount_value"), row.get("amount_currency")
        amount, item = read_amount(value), str(row.get("line_item") or "")
        if amount is None:
            problems.add(number, "amount.value", f"{shown(value)} is no amount of money")
            continue
        currency.see(number, "amount.currency", name)
        if not months.see(number, "start_time", day, row.get("start_time")):
            continue
        if not item:
            problems.add(number, "line_item", "it is empty; export the report grouped by line_item")
            continue
        kind, found = _kind(item), describe(item)
        if amount.pico < 0 and kind != CREDIT:
            problems.add(number, "amount.value", f"{shown(value)} is below 0 and {shown(item)} is no credit")
            continue
        tokens = read_count(row.get("quantity")) if kind == found.kind else None
        if kind in (TAX, CREDIT, FEE):
            lines.append(
                BillLine(number, day or "", "", _keys(row), "", kind, None, amount.pico, None, amount.step, item)
            )
        else:
            lines.append(
                BillLine(
                    *(number, day or "", found.model, _keys(row), found.tier, kind, tokens, amount.pico),
                    step=amount.step,
                )
            )
    problems.raise_any()
    return ReadBill("openai_costs", PROVIDER, months.month, currency.name, lines)


def _kind(item: str) -> str:
    lower = item.lower()
    if any(word in lower for word in _CREDITS):
        return CREDIT
    if lower.startswith(("tax", "vat", "gst")) or lower.endswith(" tax"):
        return TAX
    return describe(item).kind or FEE


def _keys(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in ("api_key_id", "project_id") if row.get(name))


def _rows(
    text: str, known: frozenset[str], wanted: tuple[str, ...], problems: Problems
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if text.lstrip("\ufeff").lstrip().startswith(("{", "[")):
        seen: set[str] = set()
        for number, bucket, result in results(text, problems):
            new = result.keys() - seen
            if new:
                seen |= new
                for name in sorted(new - known):
                    if any(word in name.lower() for word in ("token", "cost", "amount")):
                        problems.add(number, name[:40], "the field is unknown and may hold tokens or money; remove it")
            yield number, {"start_time": bucket.get("start_time"), **result}
        return
    names = csv_header(text)
    refuse_unknown(names, known, problems)
    if require_columns(names, wanted, problems, _REMEDY):
        yield from csv_rows(text, problems)
