"""Parses Google Cloud's billing export to BigQuery, standard or detailed, saved as JSON Lines or an array."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from analytics.reconciliation.formats.charge import Charge, read_money
from analytics.reconciliation.formats.pages import load_json
from analytics.reconciliation.formats.reading import (
    OneCurrency,
    OneMonth,
    Problems,
    read_amount,
    read_day,
    read_decimal,
    read_tokens,
    read_unit_price,
    row_digest,
    shown,
)
from analytics.reconciliation.formats.words import Counted, counted_by, describe, kind_of_usage
from analytics.reconciliation.lines import CREDIT, FEE, ROUNDING, TAX, BillLine, ReadBill

PROVIDER: Final = "vertex_ai"
_SERVICES: Final = ("vertex ai", "gemini api", "generative language api", "cloud ai companion")
_COST_TYPES: Final = {"tax": TAX, "rounding_error": ROUNDING}
_COUNTS: Final = frozenset({"count", "token", "tokens"})
_KNOWN: Final = frozenset(
    {
        *("billing_account_id", "service", "sku", "usage_start_time", "usage_end_time", "project", "labels", "tags"),
        *("system_labels", "location", "export_time", "cost", "currency", "currency_conversion_rate", "usage"),
        *("credits", "invoice", "cost_type", "adjustment_info", "cost_at_list", "transaction_type", "seller_name"),
        *("subscription", "resource", "price", "cost_at_effective_price_default", "cost_at_list_consumption_model"),
        *("consumption_model", "cost_at_list_undiscounted"),
    }
)


def is_vertex(row: object) -> bool:
    """Return whether a JSON value is a row of a billing export."""
    return isinstance(row, Mapping) and "sku" in row and "usage_start_time" in row


def read_vertex(text: str, month: str) -> ReadBill:
    """Parse an export. Lines of other services are skipped and counted. Raises UnreadableBill."""
    problems, lines, skipped = Problems(), list[BillLine](), 0
    months, currency = OneMonth(month, problems), OneCurrency(problems)
    checked: set[str] = set()
    for number, row in _rows(text):
        if not is_vertex(row):
            problems.add(number, "sku", "this is not a row of a billing export: it has no sku and usage_start_time")
            continue
        for name in sorted(row.keys() - _KNOWN - checked):
            checked.add(name)
            if "cost" in name or "credit" in name or "amount" in name:
                problems.add(number, name[:40], "the field is unknown and may hold money; remove it")
        if _text(row, "service", "description").lower() not in _SERVICES:
            skipped += 1
            continue
        invoice = _text(row, "invoice", "month")
        if invoice:
            first = f"{invoice[:4]}-{invoice[4:6]}-01"
            months.see(number, "invoice.month", read_day(first), invoice)
        day = read_day(row["usage_start_time"])
        currency.see(number, "currency", row.get("currency"))
        if months.see(number, "usage_start_time", day, row["usage_start_time"], may_be_earlier=bool(invoice)):
            lines.extend(_lines(number, day or "", row, problems))
    problems.raise_any()
    return ReadBill("vertex", PROVIDER, months.month, currency.name, lines, skipped)


def _rows(text: str) -> list[tuple[int, Any]]:
    rows: list[tuple[int, Any]] = []
    for number, value in load_json(text):
        rows += (
            [(number + place, each) for place, each in enumerate(value)]
            if isinstance(value, list)
            else [(number, value)]
        )
    return rows


def _lines(number: int, day: str, row: Mapping[str, Any], problems: Problems) -> list[BillLine]:
    sort = str(row.get("cost_type") or "regular")
    amount = read_money(number, "cost", row.get("cost"), problems)
    if amount is None:
        return []
    said = _text(row, "sku", "description")
    found = describe(said)
    project = _text(row, "project", "id")
    keys = (project,) if project else ()
    detail = row_digest(*sorted(row.items()))
    kind = _COST_TYPES.get(sort, "")
    if sort == "adjustment":
        kind = CREDIT if amount.pico < 0 else FEE
    elif not kind and sort != "regular":
        problems.add(number, "cost_type", f"{shown(sort)} is unknown")
        return []
    usage = _part(row, "usage")
    unit = str(usage.get("unit") or "")
    counted = Counted("", Decimal(1)) if unit.lower() in _COUNTS else counted_by(unit)
    used = kind_of_usage(found, counted)
    kind = kind or used or FEE
    charge = Charge(number, day, "cost", row.get("cost"), amount, found, keys, detail)
    if charge.is_refused(kind, "a regular charge", problems):
        return []
    tokens = price = None
    if kind == used and counted is not None and counted.fits(kind):
        tokens = read_tokens(usage.get("amount"), counted.per_unit)
        if tokens is None:
            problems.add(number, "usage.amount", f"{shown(usage.get('amount'))} {unit} is not a whole count, 0 or more")
            return []
        stated = _part(row, "price")
        each = read_decimal(stated.get("pricing_unit_quantity")) or Decimal(1)
        price = read_unit_price(stated.get("effective_price"), each * (counted.per_unit if counted.kind else 1))
    lines = [charge.line(kind, tokens, price)]
    credits = row.get("credits") or ()
    if not isinstance(credits, list | tuple):
        problems.add(number, "credits", f"{shown(credits)} is not a list")
        return []
    for place, credit in enumerate(credits, start=1):
        worth = read_amount(credit.get("amount")) if isinstance(credit, Mapping) else None
        if worth is None:
            problems.add(number, f"credits[{place}].amount", "it is not an amount of money")
            continue
        name = f"{detail} {credit.get('name', '')} {place}"
        lines.append(
            BillLine(*(number, day, found.model, keys, found.tier, CREDIT, None, worth.pico, None, worth.step, name))
        )
    return lines


def _text(row: Mapping[str, Any], name: str, part: str) -> str:
    return str(_part(row, name).get(part) or "")


def _part(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a nested object of a row; empty if it is missing or not an object."""
    value = row.get(name)
    return value if isinstance(value, Mapping) else {}
