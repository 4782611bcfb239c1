"""Checks a FOCUS dataset against the specification's rules on values of rows and sums over rows.

The rules are those of FOCUS 1.3 (focus.finops.org) and its requirements model, for the columns that are exported here.
The official validator (github.com/finopsfoundation/focus_validator) needs Python 3.12.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from analytics.exports.focus_columns import (
    ALLOWED,
    COLUMNS,
    FLAG,
    KEY_VALUES,
    NUMBER,
    OBJECT,
    SUBCATEGORIES,
    TIME,
    TIME_UNITS,
    Row,
    Value,
)
from contracts.json_names import load_once

# Pairs of columns that must both be present.
_TOGETHER: Final = (
    ("ConsumedQuantity", "ConsumedUnit"),
    ("PricingQuantity", "PricingUnit"),
    ("BillingAccountId", "BillingAccountType"),
    ("SubAccountId", "SubAccountName"),
    ("SubAccountId", "SubAccountType"),
    ("ResourceId", "ResourceType"),
    ("AllocatedMethodId", "AllocatedResourceId"),
    ("AllocatedMethodId", "AllocatedMethodDetails"),
)
# Pairs: the second must be null if the first is.
_NEEDS: Final = (
    ("SkuId", "SkuMeter"),
    ("SkuPriceId", "SkuPriceDetails"),
    ("ResourceId", "ResourceName"),
    ("AllocatedResourceId", "AllocatedResourceName"),
    ("AllocatedResourceId", "AllocatedTags"),
)
# Required columns for usage and for purchases; columns that must be null for taxes.
_OF_USAGE: Final = (
    *("ContractedUnitPrice", "ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit"),
    *("SkuId", "SkuPriceId"),
)
_NOT_OF_TAX: Final = (
    *("ContractedUnitPrice", "ListUnitPrice", "PricingCategory", "PricingQuantity"),
    *("SkuId", "SkuPriceId"),
)
_NOT_BELOW_ZERO: Final = (
    *("ContractedUnitPrice", "ListUnitPrice"),
    *("PricingCurrencyContractedUnitPrice", "PricingCurrencyListUnitPrice"),
)
# Pairs: rows with the same value of the first must have the same value of the second.
_ONE_OF: Final = (
    ("SkuPriceId", "SkuId"),
    ("ServiceName", "ServiceCategory"),
    ("ServiceName", "ServiceSubcategory"),
)
# Columns in which the allocated charges of one origin may differ: the recipient, and amounts.
_OF_ONE_ALLOCATION: Final = frozenset(
    {
        *("AllocatedMethodDetails", "AllocatedResourceId", "AllocatedResourceName", "AllocatedTags"),
        *("BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "ConsumedQuantity", "PricingQuantity"),
        "PricingCurrencyEffectiveCost",
    }
)
_PLACEHOLDERS: Final = frozenset({"none", "null", "n/a", "na", "not applicable", "unknown", "-"})
_SINGULAR_TIME: Final = "|".join(unit.removesuffix("s") for unit in TIME_UNITS)
_PLURAL_TIME: Final = "|".join(TIME_UNITS)
_COUNT: Final = r"[A-Z][A-Za-z]*"
# FOCUS's unit format: plural units, optionally with a quantity, a duration, or per time unit.
_UNIT: Final = re.compile(
    rf"^(?:(?:\d+ )?{_COUNT}|{_COUNT}-{_COUNT}|{_COUNT}-(?:{_PLURAL_TIME})"
    rf"|{_COUNT}/(?:{_SINGULAR_TIME})|{_COUNT}/\d+ (?:{_PLURAL_TIME}))$"
)
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_NEAR: Final = Decimal("1e-12")
_RATIO_NEAR: Final = Decimal("1e-9")
_COSTS: Final = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")


def focus_faults(rows: Sequence[Row]) -> list[str]:
    """Return the rule violations, one line each; [] if the dataset conforms."""
    faults = [fault for number, row in enumerate(rows, 1) for fault in _row_faults(number, row)]
    return faults + _parent_faults(rows) + _allocation_faults(rows)


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
        faults += [f"{where}: {name} {fault}" for fault in _value_faults(kind, value, is_name=_is_name(name))]
        if name in ALLOWED and value not in ALLOWED[name]:
            faults.append(f"{where}: {name} {value!r} is not one of {', '.join(sorted(ALLOWED[name]))}")
    rules = (_relation_faults, _category_faults, _period_faults, _unit_faults, _price_faults)
    return faults + [f"{where}: {fault}" for rule in rules for fault in rule(row)]


def _is_name(column: str) -> bool:
    return column.startswith("x_") or column.endswith(("Id", "Name"))


def _value_faults(kind: str, value: Value, *, is_name: bool) -> list[str]:
    if kind == NUMBER:
        return [] if isinstance(value, Decimal) and value.is_finite() else ["must be a decimal number"]
    if kind == TIME:
        is_utc = isinstance(value, datetime) and value.utcoffset() == timedelta(0)
        return [] if is_utc else ["must be a time in UTC"]
    if kind == FLAG:
        return [] if isinstance(value, bool) else ["must be true or false"]
    if not isinstance(value, str) or not value.strip():
        return ["must be text that is not empty"]
    # Names are chosen by customers: a team may be called "na".
    if not is_name and value.strip().lower() in _PLACEHOLDERS:
        return [f"{value!r} means no value; use null"]
    if kind == KEY_VALUES:
        return _key_value_faults(value)
    return _object_faults(value) if kind == OBJECT else []


def _key_value_faults(text: str) -> list[str]:
    """Return errors against FOCUS's key-value format: a JSON object with unique keys and scalar values."""
    try:
        read = load_once(text)
    except ValueError:
        return ["must be a JSON object with every key once"]
    if not isinstance(read, dict):
        return ["must be a JSON object"]
    nested = [name for name, value in read.items() if isinstance(value, dict | list)]
    return [f"must have plain values; {name!r} is not one" for name in nested]


def _object_faults(text: str) -> list[str]:
    """Return violations of AllocatedMethodDetails' schema: Elements with ratios; other keys begin with x_."""
    try:
        read = load_once(text, parse_float=Decimal)
    except ValueError:
        return ["must be a JSON object with every key once"]
    elements = read.get("Elements") if isinstance(read, dict) else None
    if not isinstance(elements, list) or not elements or not all(isinstance(one, dict) for one in elements):
        return ["must be a JSON object with Elements, an array of objects"]
    faults = [f"has a key {name!r} that does not begin with x_" for name in read if not _is_key(name, ("Elements",))]
    for element in elements:
        ratio = element.get("AllocatedRatio")
        if isinstance(ratio, bool) or not isinstance(ratio, int | Decimal):
            faults.append("must have a numeric AllocatedRatio in each element")
        if ("UsageQuantity" in element) and not isinstance(element.get("UsageUnit"), str):
            faults.append("must have a UsageUnit where it has a UsageQuantity")
        known = ("AllocatedRatio", "UsageUnit", "UsageQuantity")
        faults += [f"has a key {name!r} that does not begin with x_" for name in element if not _is_key(name, known)]
    return faults


def _is_key(name: str, known: Sequence[str]) -> bool:
    return name in known or name.startswith("x_")


def _relation_faults(row: Row) -> list[str]:
    faults = [
        f"{one} and {other} must be given together"
        for one, other in _TOGETHER
        if (row.get(one) is None) != (row.get(other) is None)
    ]
    faults += [
        f"{other} must be null where {one} is"
        for one, other in _NEEDS
        if row.get(one) is None and row.get(other) is not None
    ]
    if row.get("ResourceName") is not None and row.get("ResourceName") == row.get("ResourceId"):
        faults.append("ResourceName must not repeat ResourceId")
    return faults


def _category_faults(row: Row) -> list[str]:
    category, is_correction = row.get("ChargeCategory"), row.get("ChargeClass") == "Correction"
    faults = []
    if category in ("Usage", "Purchase") and not is_correction:
        needed = (*_OF_USAGE, *(("ConsumedQuantity",) if category == "Usage" else ()))
        faults += [
            f"{name} must not be null where ChargeCategory is {category}" for name in needed if _lacks(row, name)
        ]
    if category == "Tax":
        faults += [f"{name} must be null where ChargeCategory is Tax" for name in _NOT_OF_TAX if not _lacks(row, name)]
    if category != "Usage" and not _lacks(row, "ConsumedQuantity"):
        faults.append("ConsumedQuantity must be null where ChargeCategory is not Usage")
    if category == "Purchase" and row.get("ChargeFrequency") == "Usage-Based":
        faults.append("ChargeFrequency must not be Usage-Based where ChargeCategory is Purchase")
    if category == "Credit" and len({row.get(name) for name in _COSTS}) > 1:
        faults.append("all costs must be BilledCost where ChargeCategory is Credit")
    return faults + _service_faults(row)


def _service_faults(row: Row) -> list[str]:
    service, sub = row.get("ServiceCategory"), row.get("ServiceSubcategory")
    if service not in SUBCATEGORIES:
        return [f"ServiceCategory {service!r} is not one of {', '.join(sorted(SUBCATEGORIES))}"]
    if sub not in SUBCATEGORIES[str(service)]:
        return [f"ServiceSubcategory {sub!r} is none of ServiceCategory {service!r}"]
    return []


def _lacks(row: Row, name: str) -> bool:
    return row.get(name) is None


def _period_faults(row: Row) -> list[str]:
    faults = []
    for begin, end in (("BillingPeriodStart", "BillingPeriodEnd"), ("ChargePeriodStart", "ChargePeriodEnd")):
        start, until = row.get(begin), row.get(end)
        if isinstance(start, datetime) and isinstance(until, datetime) and not start < until:
            faults.append(f"{begin} must lie before {end}")
    names = ("BillingPeriodStart", "ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodEnd")
    moments = [moment for name in names if isinstance(moment := row.get(name), datetime)]
    # A missing or invalid time is reported separately.
    if len(moments) == len(names) and not (moments[0] <= moments[1] and moments[2] <= moments[3]):
        faults.append("the charge period must lie within the billing period")
    return faults


def _unit_faults(row: Row) -> list[str]:
    faults = []
    for name in ("BillingCurrency", "PricingCurrency"):
        if not _CURRENCY.fullmatch(str(row.get(name))):
            faults.append(f"{name} must be a code of ISO 4217")
    for name in ("ConsumedUnit", "PricingUnit"):
        unit = row.get(name)
        if isinstance(unit, str) and not _UNIT.match(unit):
            faults.append(f"{name} {unit!r} is not in FOCUS's unit format")
    return faults


def _price_faults(row: Row) -> list[str]:
    faults = []
    for name in _NOT_BELOW_ZERO:
        unit_price = row.get(name)
        if isinstance(unit_price, Decimal) and unit_price.is_finite() and unit_price < 0:
            faults.append(f"{name} must not be negative")
    cost = row.get("BilledCost")
    if isinstance(cost, Decimal) and cost and row.get("ProviderName") != row.get("InvoiceIssuerName"):
        faults.append("BilledCost must be 0 where another than InvoiceIssuerName sells")
    if row.get("ChargeClass") == "Correction":
        return faults
    for price, cost in (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost")):
        unit_price, quantity, amount = row.get(price), row.get("PricingQuantity"), row.get(cost)
        if isinstance(unit_price, Decimal) and isinstance(quantity, Decimal) and isinstance(amount, Decimal):
            # In other currencies than USD the unit price is rounded, so the product may be off by that per unit.
            if abs(unit_price * quantity - amount) > _NEAR * max(abs(quantity), Decimal(1)):
                faults.append(f"{price} x PricingQuantity is {unit_price * quantity}, and {cost} is {amount}")
    return faults


def _parent_faults(rows: Sequence[Row]) -> list[str]:
    """Return an error for each value with more than one parent value in the dataset."""
    faults = []
    for child, parent in _ONE_OF:
        found: defaultdict[Value, set[Value]] = defaultdict(set)
        for row in rows:
            if row.get(child) is not None:
                found[row.get(child)].add(row.get(parent))
        faults += [
            f"{child} {name!r} has {len(parents)} values of {parent}: {', '.join(sorted(map(str, parents)))}"
            for name, parents in found.items()
            if len(parents) > 1
        ]
    return faults


def _allocation_faults(rows: Sequence[Row]) -> list[str]:
    """Return errors of allocated charges: the ratios of one origin must sum to 1, and other columns must be equal."""
    ratios: defaultdict[tuple[Value, ...], Decimal] = defaultdict(Decimal)
    shared: dict[tuple[Value, ...], Row] = {}
    faults = []
    for number, row in enumerate(rows, 1):
        details = row.get("AllocatedMethodDetails")
        if not isinstance(details, str):
            continue
        origin = (row.get("ResourceId"), row.get("ChargePeriodStart"), row.get("ChargePeriodEnd"))
        ratios[origin] += _ratio_of(details)
        first = shared.setdefault(origin, row)
        differs = [
            name
            for name in COLUMNS
            if name not in _OF_ONE_ALLOCATION and not name.startswith("x_") and row.get(name) != first.get(name)
        ]
        faults += [f"row {number}: {name} differs from what else {origin[0]!r} was split into" for name in differs]
    return faults + [
        f"the allocated ratios of {origin[0]!r} sum to {ratio}, not 1"
        for origin, ratio in ratios.items()
        if abs(ratio - 1) > _RATIO_NEAR
    ]


def _ratio_of(details: str) -> Decimal:
    try:
        read = json.loads(details, parse_float=Decimal)
    except ValueError:
        return Decimal(0)  # reported separately
    elements = read.get("Elements") if isinstance(read, Mapping) else None
    ratios = [one.get("AllocatedRatio") for one in elements or () if isinstance(one, Mapping)]
    return sum((Decimal(one) for one in ratios if isinstance(one, int | Decimal)), Decimal(0))
