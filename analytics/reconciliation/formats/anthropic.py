"""Parses usage and cost reports of Anthropic's Admin API, as JSON pages.

Usage: /v1/organizations/usage_report/messages, grouped by model, api_key_id, workspace_id, service_tier,
context_window. Costs: /v1/organizations/cost_report, grouped by description and workspace_id; amounts are in cents.
"""

from collections.abc import Mapping
from typing import Any, Final

from analytics.reconciliation.formats.pages import results
from analytics.reconciliation.formats.reading import (
    OneCurrency,
    OneMonth,
    Problems,
    read_amount,
    read_count,
    read_day,
    shown,
)
from analytics.reconciliation.formats.words import describe
from analytics.reconciliation.lines import CREDIT, FEE, BillLine, ReadBill
from contracts.pricing.service_tiers import tier_name

PROVIDER: Final = "anthropic"
_USAGE: Final = {
    "uncached_input_tokens": "input_text",
    "cache_read_input_tokens": "cache_read_text",
    "output_tokens": "output_text",
}
_WRITES: Final = {"ephemeral_5m_input_tokens": "cache_write_5m", "ephemeral_1h_input_tokens": "cache_write_1h"}
_COSTS: Final = {
    **_USAGE,
    "cache_creation.ephemeral_5m_input_tokens": "cache_write_5m",
    "cache_creation.ephemeral_1h_input_tokens": "cache_write_1h",
    "cache_creation_input_tokens": "cache_write_5m",
}
_DETAILS: Final = ("context_window", "inference_geo", "speed")
_CENTS: Final = 100
_REMEDY: Final = "export the report again, grouped by model, workspace and API key"


def read_usage(text: str, month: str) -> ReadBill:
    """Parse a usage report. Raises UnreadableBill."""
    problems, lines = Problems(), []
    months = OneMonth(month, problems)
    for number, bucket, row in results(text, problems):
        counts: dict[str, int] = {}
        writes = row.get("cache_creation") or {}
        wanted = [(name, leaf, row.get(name)) for name, leaf in _USAGE.items()]
        wanted += [
            (f"cache_creation.{name}", leaf, writes.get(name) if isinstance(writes, Mapping) else "none")
            for name, leaf in _WRITES.items()
        ]
        for name, leaf, value in wanted:
            count = 0 if value is None else read_count(value)
            if count is None:
                problems.add(number, name, f"{shown(value)} is not a count of tokens, which is 0 or more")
            else:
                counts[leaf] = count
        for name in sorted(row.keys() - _USAGE.keys()):
            if "token" in name:
                problems.add(number, name[:40], "the field is unknown and may hold tokens; remove it")
        day = read_day(bucket.get("starting_at"))
        if not months.see(number, "starting_at", day, bucket.get("starting_at")):
            continue
        model = str(row.get("model") or "")
        if not model:
            problems.add(number, "model", f"it is empty; {_REMEDY}")
            continue
        tier = tier_name(str(row.get("service_tier") or ""))
        for leaf, count in counts.items():
            if count:
                lines.append(
                    BillLine(number, day or "", model, _keys(row), tier, leaf, count, None, detail=_detail(row))
                )
    problems.raise_any()
    return ReadBill("anthropic_usage", PROVIDER, months.month, "", lines)


def read_costs(text: str, month: str) -> ReadBill:
    """Parse a cost report. Raises UnreadableBill."""
    problems, lines = Problems(), []
    months, currency = OneMonth(month, problems), OneCurrency(problems)
    for number, bucket, row in results(text, problems):
        amount = read_amount(row.get("amount"), scale=_CENTS)
        day, text_of = read_day(bucket.get("starting_at")), str(row.get("description") or "")
        if amount is None:
            problems.add(number, "amount", f"{shown(row.get('amount'))} is not an amount of money in cents")
            continue
        currency.see(number, "currency", row.get("currency"))
        if not months.see(number, "starting_at", day, bucket.get("starting_at")):
            continue
        stated = row.get("token_type")
        found = describe(text_of)
        model = str(row.get("model") or found.model)
        if stated is not None:
            kind = _COSTS.get(str(stated), "")
            if not kind:
                problems.add(number, "token_type", f"{shown(stated)} is unknown")
                continue
        elif amount.pico < 0:
            kind = CREDIT
        elif row.get("cost_type") in (None, "tokens"):
            kind = found.kind
            if not kind or not model:
                problems.add(number, "description", "it names no kind of tokens; export the report by description")
                continue
        else:
            kind = FEE
        if amount.pico < 0 and kind != CREDIT:
            problems.add(number, "amount", f"{shown(row.get('amount'))} is below 0 and the line is not a credit")
            continue
        tier = tier_name(str(row.get("service_tier") or ""))
        detail = _detail(row) if kind not in (FEE, CREDIT) else text_of
        line = BillLine(
            *(number, day or "", model, _keys(row), tier, kind, None, amount.pico), step=amount.step, detail=detail
        )
        lines.append(line)
    problems.raise_any()
    return ReadBill("anthropic_costs", PROVIDER, months.month, currency.name, lines)


def _keys(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in ("api_key_id", "workspace_id") if row.get(name))


def _detail(row: Mapping[str, Any]) -> str:
    return " ".join(str(row[name]) for name in _DETAILS if row.get(name))
