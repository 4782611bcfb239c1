"""Costs in the FinOps Open Cost and Usage Specification, version 1.3, with its split allocation columns.

Usage: one row per payer, model, price and meter in each charge period. GPU time: each GPU's cost split over its
tenants, in rows that sum to it. Names and values follow FOCUS 1.3 (focus.finops.org).

Costs are in the currency of the account's invoice, and in USD in the pricing currency columns. A month's terms, taxes
and rounding are separate rows, so that the rows of an invoice sum to its payable amount.

FOCUS has no unknown cost: unpriced usage is a row of cost 0, marked in `x_IsUnpriced` and in the description; so are
requests with unknown usage, with their number. Usage with estimated counts is in separate rows (`x_IsEstimated`).
Failed requests are free and have no row.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from algorithms.gpu_time.attribution import METHOD, split_exactly
from analytics.exports.billing import (
    COMMITMENT,
    DISCOUNT,
    FREE_TIER,
    LATE,
    ROUNDING,
    TAX,
    Billed,
    Billing,
    Extra,
    moved_parts,
)
from analytics.exports.charges import CREDIT, REQUEST, UNKNOWN_USAGE, Charge
from analytics.exports.focus_columns import COLUMNS, Row, Value
from analytics.gpu.cost import GpuCost
from analytics.scope import Period
from contracts.pricing.money import usd
from contracts.pricing.unit_prices import unit_of
from contracts.serving.rollouts import PLATFORM_TENANT

__all__ = ["COLUMNS", "VERSION", "Row", "Value", "extra_rows", "gpu_rows", "usage_rows"]

VERSION: Final = "1.3"
_MTOK: Final = "1000000 Tokens"
_GPU_HOUR_NS: Final = Decimal(3_600 * 10**9)
_RATIO_UNITS: Final = 10**12
_IN_CURRENCY: Final = (
    *("BilledCost", "ContractedCost", "ContractedUnitPrice", "EffectiveCost", "ListCost", "ListUnitPrice"),
)
# Columns in USD, by the corresponding column in the billing currency.
_PRICED: Final[Mapping[str, str]] = {
    "PricingCurrencyContractedUnitPrice": "ContractedUnitPrice",
    "PricingCurrencyEffectiveCost": "EffectiveCost",
    "PricingCurrencyListUnitPrice": "ListUnitPrice",
}
# Charges besides usage: category and frequency.
_CATEGORIES: Final[Mapping[str, tuple[str, str]]] = {
    DISCOUNT: ("Adjustment", "One-Time"),
    FREE_TIER: ("Credit", "Recurring"),
    COMMITMENT: ("Adjustment", "Recurring"),
    TAX: ("Tax", "One-Time"),
    ROUNDING: ("Adjustment", "One-Time"),
    LATE: ("Adjustment", "One-Time"),
}
PLATFORM: Final = "platform"
SERVICE: Final = "LLM gateway"  # service name if the model is unknown
AS_BILLED: Final = "as-billed"  # price unit of charges that are not per token
ALLOCATION: Final = f"tollkeeper/{METHOD}"


def usage_rows(
    charges: Iterable[Charge],
    month: Period,
    periods: Sequence[Period],
    issuer: str,
    billing: Billing | None = None,
) -> list[Row]:
    """Return a month's charges as one row each. `issuer`: the organisation that runs the gateway, sells and invoices.

    Raises ConfigurationError if an account's currency has no rate."""
    billing = billing or Billing()
    ends, name = {period.start_s: period for period in periods}, _month(month)
    rows = []
    for charge in charges:
        row = (_booked_row if charge.is_booked else _usage_row)(charge, month, ends[charge.period_start], issuer)
        billed = billing.of(charge, month, name, str(row["BillingAccountId"]))
        rows.append(_billed_by(row | _listed(charge), billed))
    return rows


def extra_rows(charges: Sequence[Charge], month: Period, zone: ZoneInfo, issuer: str, billing: Billing) -> list[Row]:
    """Return the rows of a whole month's documents besides its charges: terms, taxes, rounding, and usage that other
    invoices bill. Raises ConfigurationError if an account's currency has no rate."""
    name = _month(month)
    by_tenant: dict[str, list[Charge]] = {}
    for charge in charges:
        by_tenant.setdefault(charge.tenant, []).append(charge)
    rows = []
    for tenant in billing.tenants_of(name, month, charges):
        owed = by_tenant.get(tenant, [])
        own = billing.with_extras(tenant, month, name, owed, zone)
        notes = {billing.of(one, month, name, tenant) for one in owed if one.meter == CREDIT}
        for billed in (own, *sorted(notes - {own}, key=lambda note: note.number)):
            rows += [_extra_row(extra, tenant, billed, month, issuer) for extra in billed.extras]
        for billed, amount in moved_parts(billing, tenant, name, own, owed, zone):
            moved = Extra(LATE, f"Usage of {name} that is billed by another invoice", billed.in_currency(usd(amount)))
            row = _extra_row(moved, tenant, billed, month, issuer)
            rows.append(row | {"PricingCurrencyEffectiveCost": usd(amount)})
    return rows


def _extra_row(extra: Extra, tenant: str, billed: Billed, month: Period, issuer: str) -> Row:
    category, frequency = _CATEGORIES[extra.kind]
    named: Row = {} if category == "Tax" else {"SkuId": f"terms/{extra.kind}", "SkuMeter": extra.kind}
    row = _row(
        month,
        month,
        issuer,
        extra.amount,
        extra.name,
        ChargeCategory=category,
        ChargeFrequency=frequency,
        ServiceName=SERVICE,
        **_account(tenant),
        x_CostBasis=extra.kind,
        x_TenantId=tenant,
        **named,
    )
    priced = {name: None if row[of] is None else billed.in_usd(_number(row, of)) for name, of in _PRICED.items()}
    return row | priced | {"BillingCurrency": billed.currency, "InvoiceId": billed.number}


def _billed_by(row: Row, billed: Billed) -> Row:
    """Convert a row in USD to its document's currency, with the USD amounts in the pricing currency columns."""
    priced = {name: row[of] for name, of in _PRICED.items()}
    costs = {name: None if row[name] is None else billed.in_currency(_number(row, name)) for name in _IN_CURRENCY}
    return row | priced | costs | {"BillingCurrency": billed.currency, "InvoiceId": billed.number}


def _number(row: Row, name: str) -> Decimal:
    value = row[name]
    assert isinstance(value, Decimal)
    return value


def _month(billing: Period) -> str:
    """Return the month of a billing period, such as "2026-11", in any time zone."""
    return f"{(billing.start + (billing.end - billing.start) / 2).astimezone(UTC):%Y-%m}"


def _draft(month: str, account: Value) -> str:
    """Return the provisional id of an account's invoice."""
    return f"draft {month}/{account}"


def gpu_rows(device: str, device_model: str, cost: GpuCost, billing: Period, issuer: str) -> list[Row]:
    """Return one GPU's cost as one row per tenant and one for the operator (`platform`); they sum to the GPU's cost.

    The rows of one GPU differ only in the allocated tenant, amount and ratio.
    """
    # Not by name: a tenant may be named `platform`.
    owed = [(one.tenant, one.tenant, one.total_pico_usd, one.used_ns) for one in cost.tenants]
    parts = [*owed, (None, PLATFORM, cost.platform_pico_usd, 0)]
    sku = f"gpu/{device_model or device}"
    rows = []
    for (tenant, name, amount, used_ns), ratio in zip(parts, _ratios([part[2] for part in parts]), strict=True):
        quantity = {"UsageUnit": "GPU-Nanoseconds", "UsageQuantity": used_ns}
        details = {"Elements": [{"AllocatedRatio": ratio, **quantity}], "x_IdlePolicy": cost.policy}
        hours = Decimal(used_ns) / _GPU_HOUR_NS
        rows.append(
            _row(
                billing,
                cost.period,
                issuer,
                usd(amount),
                f"GPU time of {device_model or device}, allocated by {ALLOCATION}",
                ServiceCategory="Compute",
                ServiceSubcategory="Virtual Machines",
                ServiceName="GPU inference",
                ResourceId=device,
                ResourceType="GPU",
                ConsumedQuantity=hours.quantize(Decimal("1e-12")),
                ConsumedUnit="GPU-Hours",
                AllocatedMethodId=ALLOCATION,
                AllocatedMethodDetails=json.dumps(details, sort_keys=True),
                AllocatedResourceId=name,
                AllocatedResourceName=name,
                AllocatedTags=json.dumps({"tenant": tenant} if tenant is not None else {}),
                x_TenantId=tenant,
                x_CostBasis="gpu_rate",
                x_GpuModel=device_model or None,
                x_PriceVersion="+".join(cost.rate_versions) or None,
                SkuId=sku,
                SkuMeter="gpu_time",
                SkuPriceId=f"{sku}/gpu_time/{AS_BILLED}",
                **_whole(usd(amount)),
            )
        )
    return rows


def _ratios(amounts: Sequence[int]) -> list[float]:
    """Return each amount's share, to twelve decimal places, with a sum of 1; if all are 0, the last share is 1."""
    weights = [float(amount) for amount in amounts]
    if not any(weights):
        weights[-1] = 1.0
    return [part / _RATIO_UNITS for part in split_exactly(_RATIO_UNITS, weights)]


def _usage_row(charge: Charge, billing: Period, period: Period, issuer: str) -> Row:
    amount = usd(charge.amount_pico_usd or 0)
    measure, each = _measure(charge.meter)
    quantity = Decimal(charge.quantity) / each
    unit = None if charge.unit_pico_usd is None else usd(charge.unit_pico_usd * each)
    named = (("of", charge.model), ("by", charge.provider))
    what = " ".join((charge.meter, *(word for pair in named if pair[1] for word in pair)))
    tags = {**dict(json.loads(charge.tags or "[]")), "project": charge.project, "team": charge.team}
    sku = "/".join(part for part in (charge.provider, charge.model) if part) or SERVICE
    return _row(
        billing,
        period,
        issuer,
        amount,
        _description(charge, what),
        HostProviderName=charge.provider or issuer,
        ServiceName=charge.model or SERVICE,
        SubAccountId=charge.team or None,
        SubAccountName=charge.team or None,
        SubAccountType="Team" if charge.team else None,
        **_account(charge.tenant),
        SkuId=sku,
        SkuMeter=charge.meter,
        SkuPriceId=_price_id(sku, charge),
        SkuPriceDetails=_price_details(charge),
        **(_whole(amount) if unit is None else _by_unit(unit, quantity, measure)),
        ConsumedQuantity=Decimal(charge.quantity) if measure == _MTOK else quantity,
        ConsumedUnit="Tokens" if measure == _MTOK else measure,
        ResourceId=charge.model or None,
        ResourceType="Model" if charge.model else None,
        Tags=json.dumps({name: value for name, value in tags.items() if value}),
        x_CostBasis=charge.basis,
        x_IsEstimated=charge.is_estimated,
        x_IsUnpriced=charge.amount_pico_usd is None,
        x_KeyId=charge.key or None,
        x_Model=charge.model or None,
        x_PriceVersion=charge.price_version or None,
        x_ProjectId=charge.project or None,
        x_TeamId=charge.team or None,
        x_TenantId=charge.tenant or None,
    )


def _booked_row(charge: Charge, billing: Period, period: Period, issuer: str) -> Row:
    """Return the row of a correction or credit, which has no usage.

    ChargeClass is Correction only for credits, which correct an invoiced billing period. Price corrections are booked
    only in open periods, so they are adjustments of the current one.
    """
    amount = usd(charge.amount_pico_usd or 0)
    is_credit = charge.meter == CREDIT
    sku = "/".join(part for part in (charge.provider, charge.model) if part) or SERVICE
    if is_credit:
        what = f"Credit on invoice {charge.invoice}" if charge.invoice else "Credit"
    else:
        by = f" by price card {charge.card}" if charge.card else ""
        what = f"Price correction{by} of {charge.quantity} requests of {charge.model or SERVICE}"
    tags = {"project": charge.project, "team": charge.team}
    return _row(
        billing,
        period,
        issuer,
        amount,
        f"{what} ({charge.adjustment})",
        ChargeCategory="Credit" if is_credit and amount < 0 else "Adjustment",
        ChargeClass="Correction" if is_credit else None,
        ChargeFrequency="One-Time",
        HostProviderName=charge.provider or issuer,
        ServiceName=charge.model or SERVICE,
        SubAccountId=charge.team or None,
        SubAccountName=charge.team or None,
        SubAccountType="Team" if charge.team else None,
        **_account(charge.tenant),
        SkuId=sku,
        SkuMeter=charge.meter,
        ResourceId=charge.model or None,
        ResourceType="Model" if charge.model else None,
        Tags=json.dumps({name: value for name, value in tags.items() if value}),
        x_AdjustmentId=charge.adjustment,
        x_CostBasis=charge.basis,
        x_KeyId=charge.key or None,
        x_Model=charge.model or None,
        x_PriceVersion=charge.card or charge.price_version or None,
        x_ProjectId=charge.project or None,
        x_TeamId=charge.team or None,
        x_TenantId=charge.tenant or None,
    )


def _description(charge: Charge, what: str) -> str:
    if charge.meter == UNKNOWN_USAGE:
        return f"Usage unknown, cost unknown: {what.replace(UNKNOWN_USAGE, 'requests', 1)}"
    if charge.amount_pico_usd is None:
        return f"Unpriced usage, cost unknown: {what}"
    return f"{what}, counted by estimate" if charge.is_estimated else what


def _account(tenant: str) -> Row:
    """Return the billing account columns: the tenant, or the installation's own account for requests of no tenant."""
    if not tenant or tenant == PLATFORM_TENANT:
        return {}
    return {"BillingAccountId": tenant, "BillingAccountName": tenant, "BillingAccountType": "Tenant"}


def _price_id(sku: str, charge: Charge) -> str:
    """Return the SkuPriceId: independent of amount, dates and payer, so that it is the same in every month and for
    every payer; different for price tiers, batches and regions."""
    if charge.unit_pico_usd is None:
        return f"{sku}/{charge.meter}/{AS_BILLED}"
    tier = (f"above-{charge.above_input_tokens}",) if charge.above_input_tokens else ()
    service = ("batch",) if charge.is_batch else (charge.service_tier,) if charge.service_tier else ()
    region = (f"in-{charge.region}",) if charge.region else ()
    return "/".join((sku, charge.meter, *tier, *service, *region))


def _price_details(charge: Charge) -> str | None:
    details: dict[str, object] = {}
    if charge.above_input_tokens:
        details["x_AboveInputTokens"] = charge.above_input_tokens
    if charge.is_batch:
        details["x_IsBatch"] = True
    if charge.service_tier:
        details["x_ServiceTier"] = charge.service_tier
    if charge.region:
        details["x_Region"] = charge.region
    return json.dumps(details, sort_keys=True) if details else None


def _measure(meter: str) -> tuple[str, int]:
    """Return FOCUS's pricing unit of a meter, and the quantity of one unit."""
    word, each = ("request", 1) if meter in (REQUEST, UNKNOWN_USAGE) else unit_of(meter)
    return f"{word.title()}s" if word else _MTOK, each


def _by_unit(price: Decimal, quantity: Decimal, measure: str) -> Row:
    return {
        "ListUnitPrice": price,
        "ContractedUnitPrice": price,
        "PricingCategory": "Standard",
        "PricingQuantity": quantity,
        "PricingUnit": measure,
    }


def _listed(charge: Charge) -> Row:
    """Return the list price columns from the general card, if a tenant's own card priced the usage."""
    if charge.list_unit_pico_usd is None or charge.unit_pico_usd is None:
        return {}
    unit = usd(charge.list_unit_pico_usd * _measure(charge.meter)[1])
    return {"ListUnitPrice": unit, "ListCost": usd(charge.list_unit_pico_usd * charge.quantity)}


def _whole(amount: Decimal) -> Row:
    """Return price columns for an amount without a unit price, in units of 1 USD: FOCUS requires a unit price."""
    return {**_by_unit(Decimal(1), amount, "Units"), "PricingCategory": "Other"}


def _row(billing: Period, period: Period, issuer: str, cost: Decimal, description: str, **values: Value) -> Row:
    row: Row = dict.fromkeys(COLUMNS)
    row |= {
        "BilledCost": cost,
        "EffectiveCost": cost,
        "ListCost": cost,
        "ContractedCost": cost,
        "BillingAccountId": issuer,
        "BillingAccountName": issuer,
        "BillingAccountType": "Installation",
        "BillingCurrency": "USD",
        "BillingPeriodStart": billing.start.astimezone(UTC),
        "BillingPeriodEnd": billing.end.astimezone(UTC),
        "ChargePeriodStart": period.start.astimezone(UTC),
        "ChargePeriodEnd": period.end.astimezone(UTC),
        "ChargeCategory": "Usage",
        "ChargeDescription": description,
        "ChargeFrequency": "Usage-Based",
        "HostProviderName": issuer,
        "InvoiceId": _draft(_month(billing), issuer),
        "InvoiceIssuerName": issuer,
        "PricingCurrency": "USD",
        "ServiceProviderName": issuer,
        "ServiceCategory": "AI and Machine Learning",
        "ServiceSubcategory": "Generative AI",
        "x_IsEstimated": False,
        "x_IsUnpriced": False,
        **values,
    }
    row |= {name: row[of] for name, of in _PRICED.items()}
    return row | {"ProviderName": row["ServiceProviderName"], "PublisherName": row["HostProviderName"]}
