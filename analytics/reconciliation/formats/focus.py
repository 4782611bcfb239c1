"""Parses FOCUS cost and usage exports as CSV, of Azure, AWS, Google or others (focus.finops.org, 1.0 to 1.3)."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from analytics.exports.focus_columns import COLUMNS
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
    refuse_unknown,
    require_columns,
    row_digest,
    shown,
)
from analytics.reconciliation.formats.words import counted_by, describe
from analytics.reconciliation.lines import CREDIT, FEE, TAX, BillLine, ReadBill

# Columns of the specification that Tollkeeper's own export lacks.
_MORE: Final = (
    *("AvailabilityZone", "CapacityReservationId", "CapacityReservationStatus", "CommitmentDiscountCategory"),
    *("CommitmentDiscountId", "CommitmentDiscountName", "CommitmentDiscountQuantity", "CommitmentDiscountStatus"),
    *("CommitmentDiscountType", "CommitmentDiscountUnit", "ContractApplied", "RegionId", "RegionName"),
    "InvoiceIssuer",
)
KNOWN: Final = frozenset({*COLUMNS, *_MORE})
_WANTED: Final = ("BilledCost", "BillingCurrency", "ChargeCategory", "ChargePeriodStart", "ServiceCategory")
_AI: Final = "ai and machine learning"
_PROVIDERS: Final = (
    (("microsoft", "azure"), "azure"),
    (("aws", "amazon"), "bedrock"),
    (("google",), "vertex_ai"),
    (("openai",), "openai"),
    (("anthropic",), "anthropic"),
)


def is_focus(names: Mapping[str, object] | list[str]) -> bool:
    """Return whether columns are those of a FOCUS file."""
    return "BilledCost" in names and "ChargeCategory" in names


def read_focus(text: str, month: str) -> ReadBill:
    """Parse a FOCUS export. Lines of other services than AI are skipped and counted. Raises UnreadableBill."""
    problems, lines, skipped, provider = Problems(), list[BillLine](), 0, ""
    months, currency = OneMonth(month, problems), OneCurrency(problems)
    names = csv_header(text)
    refuse_unknown([name for name in names if not name.startswith("x_")], KNOWN, problems)
    if not require_columns(names, _WANTED, problems, "export the cost and usage dataset of FOCUS with all columns"):
        problems.raise_any()
    for number, row in csv_rows(text, problems):
        if row["ServiceCategory"].strip().lower() != _AI:
            skipped += 1
            continue
        provider = provider or _provider(row)
        if row.get("BillingPeriodStart"):
            period = read_day(row["BillingPeriodStart"])
            months.see(number, "BillingPeriodStart", period, row["BillingPeriodStart"])
        day = read_day(row["ChargePeriodStart"])
        currency.see(number, "BillingCurrency", row["BillingCurrency"])
        if not months.see(
            *(number, "ChargePeriodStart", day, row["ChargePeriodStart"]),
            may_be_earlier=bool(row.get("BillingPeriodStart")),
        ):
            continue
        line = _line(number, day or "", row, problems)
        if line is not None:
            lines.append(line)
    problems.raise_any()
    return ReadBill("focus", provider, months.month, currency.name, lines, skipped)


def _line(number: int, day: str, row: Mapping[str, str], problems: Problems) -> BillLine | None:
    category = row["ChargeCategory"].strip()
    amount = read_money(number, "BilledCost", row["BilledCost"], problems)
    if amount is None:
        return None
    said = row.get("SkuMeter") or row.get("ChargeDescription") or row.get("SkuId") or ""
    found = describe(said)
    keys = tuple(row[name] for name in ("ResourceId", "SubAccountId") if row.get(name))
    is_correction = row.get("ChargeClass", "").strip() == "Correction"
    kind = found.kind or _unit_kind(row)
    if category == "Tax":
        kind = TAX
    elif category == "Credit" or (amount.pico < 0 and (category == "Adjustment" or is_correction)):
        kind = CREDIT
    elif category in ("Purchase", "Adjustment") or not kind:
        kind = FEE
    elif category != "Usage":
        problems.add(number, "ChargeCategory", f"{shown(category)} is not a FOCUS category")
        return None
    charge = Charge(number, day, "BilledCost", row["BilledCost"], amount, found, keys, row_digest(*row.values()))
    if charge.is_refused(kind, f"a charge of {category}", problems):
        return None
    if charge.is_beside_usage(kind):
        return charge.line(kind)
    tokens, per_unit = _counts(number, kind, row, problems)
    if tokens is not None and tokens < 0:
        return None
    price = None
    if per_unit is not None:
        stated = row.get("ContractedUnitPrice") or row.get("ListUnitPrice")
        price = read_unit_price(stated, per_unit) if stated else None
    return charge.line(kind, tokens, price)


def _unit_kind(row: Mapping[str, str]) -> str:
    """Return the kind of usage of a line's unit; empty for tokens and for units that are not recorded."""
    found = (counted_by(row.get(unit, "")) for unit in ("ConsumedUnit", "PricingUnit"))
    return next((one.kind for one in found if one is not None and one.kind), "")


def _counts(number: int, kind: str, row: Mapping[str, str], problems: Problems) -> tuple[int | None, Decimal | None]:
    """Return a line's quantity of a kind of usage (-1 after a problem), and the quantity per priced unit."""
    priced = counted_by(row.get("PricingUnit", ""))
    price_unit = None if priced is None or not priced.fits(kind) else priced.per_unit
    for quantity, unit in (("ConsumedQuantity", "ConsumedUnit"), ("PricingQuantity", "PricingUnit")):
        counted = counted_by(row.get(unit, ""))
        if counted is None or not counted.fits(kind) or not row.get(quantity):
            continue
        count = read_tokens(row[quantity], counted.per_unit)
        if count is None:
            problems.add(number, quantity, f"{shown(row[quantity])} {shown(row[unit])} is not a whole count, 0 or more")
            return -1, None
        return count, price_unit
    return None, price_unit


def _provider(row: Mapping[str, str]) -> str:
    said = " ".join(
        row.get(name, "") for name in ("ServiceProviderName", "ProviderName", "HostProviderName", "InvoiceIssuerName")
    ).lower()
    return next((name for words, name in _PROVIDERS if any(word in said for word in words)), "")
