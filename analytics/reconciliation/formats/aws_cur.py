"""Parses AWS's Cost and Usage Report as CSV, legacy (`lineItem/UsageType`) and 2.0 (`line_item_usage_type`)."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from analytics.reconciliation.formats.charge import Charge, read_money
from analytics.reconciliation.formats.reading import (
    OneCurrency,
    OneMonth,
    Problems,
    csv_header,
    csv_rows,
    read_day,
    read_tokens,
    read_unit_price,
    require_columns,
    row_digest,
    shown,
)
from analytics.reconciliation.formats.words import counted_by, describe, kind_of_usage
from analytics.reconciliation.lines import CREDIT, FEE, TAX, BillLine, ReadBill

PROVIDER: Final = "bedrock"
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WANTED: Final = (
    *("line_item_line_item_type", "line_item_usage_start_date", "line_item_usage_type", "line_item_usage_amount"),
    *("line_item_unblended_cost", "line_item_currency_code", "line_item_product_code", "pricing_unit"),
)
# Prefixes of a report's columns.
_FAMILIES: Final = (
    *("identity_", "bill_", "line_item_", "pricing_", "product", "reservation_", "savings_plan_", "discount"),
    *("cost_category", "resource_tags", "split_line_item_", "tags"),
)
_USAGE: Final = frozenset({"Usage", "DiscountedUsage", "SavingsPlanCoveredUsage"})
_CREDITS: Final = frozenset(
    {
        *("Credit", "Refund", "EdpDiscount", "PrivateRateDiscount", "BundledDiscount", "Discount", "SppDiscount"),
        *("SavingsPlanNegation", "RiVolumeDiscount"),
    }
)
_FEES: Final = frozenset({"Fee", "RIFee", "SavingsPlanRecurringFee", "SavingsPlanUpfrontFee"})


def is_cur(names: Sequence[str]) -> bool:
    """Return whether columns are those of a Cost and Usage Report."""
    return "line_item_unblended_cost" in {_snake(name) for name in names}


def read_cur(text: str, month: str) -> ReadBill:
    """Parse a report. Lines of other services than Bedrock are skipped and counted. Raises UnreadableBill."""
    problems, lines, skipped = Problems(), list[BillLine](), 0
    months, currency = OneMonth(month, problems), OneCurrency(problems)
    header = csv_header(text)
    names = {name: _snake(name) for name in header}
    for place, name in enumerate(header, start=1):
        if not names[name].startswith(_FAMILIES):
            problems.add(
                1, f"{place} ({name[:40]})", "the column does not belong to a Cost and Usage Report; remove it"
            )
    if not require_columns(list(names.values()), _WANTED, problems, "export the report again with this column"):
        problems.raise_any()
    for number, raw in csv_rows(text, problems):
        row = {names[name]: value for name, value in raw.items()}
        if not _is_bedrock(row):
            skipped += 1
            continue
        period = row.get("bill_billing_period_start_date", "")
        if period:
            months.see(number, "bill_billing_period_start_date", read_day(period), period)
        said = row["line_item_usage_start_date"]
        day = read_day(said)
        currency.see(number, "line_item_currency_code", row["line_item_currency_code"])
        if months.see(number, "line_item_usage_start_date", day, said, may_be_earlier=bool(period)):
            line = _line(number, day or "", row, problems)
            if line is not None:
                lines.append(line)
    problems.raise_any()
    return ReadBill("aws_cur", PROVIDER, months.month, currency.name, lines, skipped)


def _line(number: int, day: str, row: Mapping[str, str], problems: Problems) -> BillLine | None:
    said, sort = row["line_item_unblended_cost"], row["line_item_line_item_type"]
    amount = read_money(number, "line_item_unblended_cost", said, problems)
    if amount is None:
        return None
    usage_type = row["line_item_usage_type"]
    found = describe(usage_type)
    if not found.kind or not found.model:
        described = describe(row.get("line_item_line_item_description", ""))
        found = described if described.kind else found
    counted = counted_by(row["pricing_unit"])
    used = kind_of_usage(found, counted)
    names = ("line_item_iam_principal", "line_item_resource_id", "line_item_usage_account_id")
    keys = tuple(row[name] for name in names if row.get(name))
    if sort == "Tax":
        kind = TAX
    elif sort in _CREDITS:
        kind = CREDIT
    elif sort in _FEES or (sort in _USAGE and not used):
        kind = FEE
    elif sort in _USAGE:
        kind = used
    else:
        problems.add(number, "line_item_line_item_type", f"{shown(sort)} is unknown")
        return None
    charge = Charge(number, day, "line_item_unblended_cost", said, amount, found, keys, row_digest(*row.values()))
    if charge.is_refused(kind, f"a line of type {sort}", problems):
        return None
    if charge.is_beside_usage(kind):
        return charge.line(kind)
    tokens = price = None
    if counted is not None and counted.fits(kind):
        tokens = read_tokens(row["line_item_usage_amount"], counted.per_unit)
        if tokens is None:
            counted_as, unit = row["line_item_usage_amount"], row["pricing_unit"]
            what = f"{shown(counted_as)} of {shown(unit)} is not a whole count, 0 or more"
            problems.add(number, "line_item_usage_amount", what)
            return None
        price = read_unit_price(row.get("line_item_unblended_rate") or None, counted.per_unit)
    return charge.line(kind, tokens, price)


def _is_bedrock(row: Mapping[str, str]) -> bool:
    names = ("line_item_product_code", "product_product_name", "line_item_line_item_description", "product_servicecode")
    return any("bedrock" in row.get(name, "").lower() for name in names)


def _snake(name: str) -> str:
    return _CAMEL.sub("_", name.replace("/", "_")).lower()
