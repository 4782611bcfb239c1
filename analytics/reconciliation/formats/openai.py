"""Parses OpenAI's usage and cost reports, as JSON pages of the API or as CSV from the dashboard.

Usage: https://api.openai.com/v1/organization/usage/completions (and embeddings, images, audio_speeches,
audio_transcriptions, moderations), grouped by model, api_key_id, project_id, batch, service_tier. Costs:
/v1/organization/costs, grouped by line_item, project_id, api_key_id.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
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
    read_tokens,
    refuse_unknown,
    require_columns,
    shown,
)
from analytics.reconciliation.formats.words import Counted, counted_by, describe, kind_of_usage
from analytics.reconciliation.lines import CREDIT, FEE, TAX, BillLine, ReadBill
from contracts.metering.usage import TOKEN_LEAVES
from contracts.pricing.service_tiers import BATCH, tier_name

PROVIDER: Final = "openai"
USAGE_OBJECTS: Final = ("organization.usage.completions.result", "organization.usage.embeddings.result")
_IN_TOKENS: Final = "input_tokens"
# Reports of other units than tokens: the field with the count, the kind of usage, and its quantity per unit.
_UNIT_OBJECTS: Final[Mapping[str, tuple[str, str, int]]] = {
    "organization.usage.images.result": ("images", "images", 1),
    "organization.usage.audio_speeches.result": ("characters", "characters", 1),
    "organization.usage.audio_transcriptions.result": ("seconds", "milliseconds", 1_000),
    "organization.usage.moderations.result": ("num_model_requests", "requests", 1),
}
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
    *("images", "characters", "seconds", "size", "source"),
)
# Subsets of the counts above, which are not added again.
_PARTS: Final = (
    *("input_uncached_tokens", "input_text_tokens", "output_text_tokens", "input_cached_text_tokens"),
    *("input_cached_audio_tokens", "input_cached_image_tokens", "input_image_tokens", "output_image_tokens"),
    "input_cache_write_tokens",
)
_USAGE_KNOWN: Final = frozenset({*_TOKENS, *_NAMES, *_PARTS})
_COSTS_KNOWN: Final = frozenset(
    {*_NAMES, "amount", "amount_value", "amount_currency", "line_item", "quantity", "quantity_unit", "api_source"}
)
# A usage report as CSV has one of these columns.
USAGE_COLUMNS: Final = frozenset({_IN_TOKENS, "images", "characters", "seconds"})
_REMEDY: Final = "export the report again, grouped by model, project and API key"
_CREDITS: Final = ("credit", "discount", "refund", "adjustment")


def read_usage(text: str, month: str) -> ReadBill:
    """Parse a usage report. Raises UnreadableBill."""
    problems, lines = Problems(), []
    months = OneMonth(month, problems)
    wanted = ("model", "start_time", *(() if USAGE_COLUMNS.intersection(csv_header(text)) else (_IN_TOKENS,)))
    for number, row in _rows(text, _USAGE_KNOWN, wanted, problems):
        day = read_day(row.get("start_time") or row.get("start_time_iso"))
        counts = _counts(number, row, problems)
        if not months.see(number, "start_time", day, row.get("start_time")) or counts is None:
            continue
        model = str(row.get("model") or "")
        if not model:
            problems.add(number, "model", f"it is empty; {_REMEDY}")
            continue
        tier = BATCH if str(row.get("batch")).lower() == "true" else tier_name(str(row.get("service_tier") or ""))
        detail = " ".join(str(row[name]) for name in ("size", "source") if row.get(name))
        for leaf, count in counts.items():
            if count:
                lines.append(BillLine(number, day or "", model, _keys(row), tier, leaf, count, None, detail=detail))
    problems.raise_any()
    return ReadBill("openai_usage", PROVIDER, months.month, "", lines)


def _counts(number: int, row: Mapping[str, Any], problems: Problems) -> dict[str, int] | None:
    """Return the counts of a usage report's row, by kind of usage; `None` after a problem."""
    sort = str(row.get("object") or "")
    by_unit = _UNIT_OBJECTS.get(sort)
    if not sort and _IN_TOKENS not in row:  # a CSV file has no object type; its column determines it
        by_unit = next((one for one in _UNIT_OBJECTS.values() if one[0] in row), None)
    if by_unit is not None:
        name, kind, each = by_unit
        counted = read_tokens(row.get(name), Decimal(each))
        if counted is None:
            problems.add(number, name, f"{shown(row.get(name))} is not a count of {name}, which is 0 or more")
            return None
        return {kind: counted}
    if sort and sort not in USAGE_OBJECTS:
        known = ", ".join(one.split(".")[2] for one in (*USAGE_OBJECTS, *_UNIT_OBJECTS))
        problems.add(number, "object", f"{shown(sort)} has no usage that is recorded; export {known}")
        return None
    counts: dict[str, int] = {}
    for name, leaf in _TOKENS.items():
        value = row.get(name)
        count = 0 if value in (None, "") else read_count(value)
        if count is None:
            problems.add(number, name, f"{shown(value)} is not a count of tokens, which is 0 or more")
        else:
            counts[leaf] = count
    if len(counts) < len(_TOKENS):
        return None
    if counts["cache_read_text"] > counts["input_text"]:
        problems.add(number, "input_cached_tokens", "more tokens are cached than there are input tokens")
        return None
    counts["input_text"] -= counts["cache_read_text"]
    return counts


def read_costs(text: str, month: str) -> ReadBill:
    """Parse a cost report. Raises UnreadableBill."""
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
            problems.add(number, "amount.value", f"{shown(value)} is not an amount of money")
            continue
        currency.see(number, "amount.currency", name)
        if not months.see(number, "start_time", day, row.get("start_time")):
            continue
        if not item:
            problems.add(number, "line_item", "it is empty; export the report grouped by line_item")
            continue
        found, counted = describe(item), counted_by(str(row.get("quantity_unit") or ""))
        used = kind_of_usage(found, counted)
        kind = _kind(item, used)
        if amount.pico < 0 and kind != CREDIT:
            problems.add(number, "amount.value", f"{shown(value)} is below 0 and {shown(item)} is not a credit")
            continue
        tokens = _quantity(row.get("quantity"), kind, counted) if kind == used else None
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


def _quantity(value: object, kind: str, counted: Counted | None) -> int | None:
    """Return a quantity in units of a kind of usage; `None` if its unit is unknown."""
    if kind in TOKEN_LEAVES:
        return read_count(value)
    return read_tokens(value, counted.per_unit) if counted is not None and counted.kind == kind else None


def _kind(item: str, used: str) -> str:
    lower = item.lower()
    if any(word in lower for word in _CREDITS):
        return CREDIT
    if lower.startswith(("tax", "vat", "gst")) or lower.endswith(" tax"):
        return TAX
    return used or FEE


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
