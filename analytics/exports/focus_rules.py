"""Checks a FOCUS dataset by the specification's published rules: what a row may hold, and what rows must sum to.

The official validator (github.com/finopsfoundation/focus_validator) is not in the package registries at a version that
knows 1.3; these are FOCUS 1.3's rules (focus.finops.org), as we know them, for the columns that are written here.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from analytics.exports.focus import COLUMNS, FLAG, JSON_TEXT, NUMBER, TIME, Row

_ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "ChargeCategory": frozenset({"Usage", "Purchase", "Tax", "Credit", "Adjustment"}),
    "ChargeClass": frozenset({"Correction"}),
    "ChargeFrequency": frozenset({"One-Time", "Recurring", "Usage-Based"}),
    "PricingCategory": frozenset({"Standard", "Dynamic", "Committed", "Other"}),
    "ServiceCategory": frozenset({"AI and Machine Learning", "Compute"}),
}
# Columns of which one without the other says nothing.
_TOGETHER: Final = (
    ("ConsumedQuantity", "ConsumedUnit"),
    ("PricingQuantity", "PricingUnit"),
    ("SubAccountId", "SubAccountType"),
    ("AllocatedMethodId", "AllocatedResourceId"),
    ("AllocatedMethodId", "AllocatedMethodDetails"),
)
# What no usage may be without.
_OF_USAGE: Final = (
    *("ConsumedQuantity", "ContractedUnitPrice", "ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit"),
    *("SkuId", "SkuPriceId"),
)
_UNIT: Final = re.compile(r"^(?:\d+ )?[A-Z][A-Za-z]*(?:-[A-Z][a-z]+)*(?:/[A-Z][a-z]+)?$")
_CURRENCY: Final = re.compile(r"^[A-Z]{3}$")
_NEAR: Final = Decimal("1e-12")


def focus_faults(rows: Sequence[Row]) -> list[str]:
    """Give what breaks a rule, one line for each; none where the dataset conforms."""
    faults = [fault for number, row in enumerate(rows, 1) for fault in _row_faults(number, row)]
    return faults + _allocation_faults(rows)


def _row_faults(number: int, row: Row) -> list[str]:
    where = f"row {number}"
    unknown = [name for name in row if name not in COLUMNS and not name.startswith("x_")]
    faults = [f"{where}: column {name!r} is not FOCUS's and does not begin with x_" for name in unknown]
    for name, (kind, nullable) in COLUMNS.items():
        value = row.get(name)
        if value is None:
            if not nullable:
                faults.append(f"{where}: {name} must not be null")
            continue
        faults += [f"{where}: {name} {fault}" for fault in _value_faults(kind, value)]
        if name in _ALLOWED and value not in _ALLOWED[name]:
            faults.append(f"{where}: {name} {value!r} is not one of {', '.join(sorted(_ALLOWED[name]))}")
    return faults + [f"{where}: {fault}" for fault in _relation_faults(row)]


def _value_faults(kind: str, value: object) -> list[str]:
    if kind == NUMBER:
        return [] if isinstance(value, Decimal) and value.is_finite() else ["must be a decimal number"]
    if kind == TIME:
        is_utc = isinstance(value, datetime) and value.utcoffset() == datetime.now(UTC).utcoffset()
        return [] if is_utc else ["must be a time in UTC"]
    if kind == FLAG:
        return [] if isinstance(value, bool) else ["must be true or false"]
    if not isinstance(value, str) or not value.strip():
        return ["must be text that is not empty"]
    if kind == JSON_TEXT:
        try:
            return [] if isinstance(json.loads(value), dict) else ["must be a JSON object"]
        except ValueError:
            return ["must be a JSON object"]
    return []


def _relation_faults(row: Row) -> list[str]:
    faults = [
        f"{one} and {other} must be given together"
        for one, other in _TOGETHER
        if (row.get(one) is None) != (row.get(other) is None)
    ]
    if row.get("ChargeCategory") == "Usage" and row.get("ChargeClass") != "Correction":
        missing = [name for name in _OF_USAGE if row.get(name) is None]
        faults += [f"{name} must not be null where ChargeCategory is Usage" for name in missing]
    for begin, end in (("BillingPeriodStart", "BillingPeriodEnd"), ("ChargePeriodStart", "ChargePeriodEnd")):
        start, until = row.get(begin), row.get(end)
        if isinstance(start, datetime) and isinstance(until, datetime) and not start < until:
            faults.append(f"{begin} must lie before {end}")
    if not _is_within(row):
        faults.append("the charge period must lie within the billing period")
    if not _CURRENCY.match(str(row.get("BillingCurrency"))):
        faults.append("BillingCurrency must be a code of ISO 4217")
    for name in ("ConsumedUnit", "PricingUnit"):
        unit = row.get(name)
        if isinstance(unit, str) and not _UNIT.match(unit):
            faults.append(f"{name} {unit!r} is not in FOCUS's unit format")
    for price, cost in (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost")):
        unit_price, quantity, amount = row.get(price), row.get("PricingQuantity"), row.get(cost)
        if isinstance(unit_price, Decimal) and isinstance(quantity, Decimal) and isinstance(amount, Decimal):
            if abs(unit_price * quantity - amount) > _NEAR:
                faults.append(f"{price} x PricingQuantity is {unit_price * quantity}, and {cost} is {amount}")
    return faults


def _is_within(row: Row) -> bool:
    start, begin, end, until = (
        row.get(name) for name in ("BillingPeriodStart", "ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodEnd")
    )
    if not all(isinstance(one, datetime) for one in (start, begin, end, until)):
        return True  # which is a fault of its own
    return start <= begin and end <= until  # type: ignore[operator]  # times, as was just seen


def _allocation_faults(rows: Sequence[Row]) -> list[str]:
    """The ratios of what one resource was split into are its whole."""
    ratios: defaultdict[tuple[object, ...], Decimal] = defaultdict(Decimal)
    for row in rows:
        details = row.get("AllocatedMethodDetails")
        if isinstance(details, str):
            origin = (row["ResourceId"], row["ChargePeriodStart"], row["ChargePeriodEnd"])
            ratios[origin] += Decimal(str(json.loads(details).get("AllocatedRatio", "0")))
    return [
        f"the allocated ratios of {origin[0]!r} sum to {ratio}, not 1"
        for origin, ratio in ratios.items()
        if abs(ratio - 1) > Decimal("1e-9") and ratio
    ]
