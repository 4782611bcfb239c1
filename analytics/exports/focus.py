"""Costs in the FinOps Open Cost and Usage Specification, version 1.3, with its split allocation columns.

Usage: one row per payer, model, price and meter in each charge period. GPU time: each GPU's cost split over the tenants
it worked for, in rows that sum to it. FOCUS has no unknown cost: usage without a price is a row of cost 0 that says so
in `x_IsUnpriced` and in its description. Names and values follow FOCUS 1.3 (focus.finops.org).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from analytics.exports.charges import REQUEST, Charge
from analytics.gpu.cost import GpuCost
from analytics.scope import Period
from contracts.attribution import METHOD
from contracts.money import usd

VERSION: Final = "1.3"
TEXT, NUMBER, TIME, JSON_TEXT, FLAG = "text", "number", "time", "json", "flag"
# Every column in its order, with its kind and whether it may be empty. ProviderName and PublisherName are 1.2's names.
COLUMNS: Final[Mapping[str, tuple[str, bool]]] = {
    "AllocatedMethodDetails": (JSON_TEXT, True),
    "AllocatedMethodId": (TEXT, True),
    "AllocatedResourceId": (TEXT, True),
    "AllocatedResourceName": (TEXT, True),
    "AllocatedTags": (JSON_TEXT, True),
    "BilledCost": (NUMBER, False),
    "BillingAccountId": (TEXT, False),
    "BillingAccountName": (TEXT, True),
    "BillingAccountType": (TEXT, True),
    "BillingCurrency": (TEXT, False),
    "BillingPeriodEnd": (TIME, False),
    "BillingPeriodStart": (TIME, False),
    "ChargeCategory": (TEXT, False),
    "ChargeClass": (TEXT, True),
    "ChargeDescription": (TEXT, True),
    "ChargeFrequency": (TEXT, False),
    "ChargePeriodEnd": (TIME, False),
    "ChargePeriodStart": (TIME, False),
    "ConsumedQuantity": (NUMBER, True),
    "ConsumedUnit": (TEXT, True),
    "ContractedCost": (NUMBER, False),
    "ContractedUnitPrice": (NUMBER, True),
    "EffectiveCost": (NUMBER, False),
    "HostProviderName": (TEXT, False),
    "InvoiceIssuerName": (TEXT, False),
    "ListCost": (NUMBER, False),
    "ListUnitPrice": (NUMBER, True),
    "PricingCategory": (TEXT, True),
    "PricingQuantity": (NUMBER, True),
    "PricingUnit": (TEXT, True),
    "ProviderName": (TEXT, False),
    "PublisherName": (TEXT, False),
    "ResourceId": (TEXT, True),
    "ResourceName": (TEXT, True),
    "ResourceType": (TEXT, True),
    "ServiceCategory": (TEXT, False),
    "ServiceName": (TEXT, False),
    "ServiceProviderName": (TEXT, False),
    "ServiceSubcategory": (TEXT, False),
    "SkuId": (TEXT, True),
    "SkuMeter": (TEXT, True),
    "SkuPriceId": (TEXT, True),
    "SubAccountId": (TEXT, True),
    "SubAccountName": (TEXT, True),
    "SubAccountType": (TEXT, True),
    "Tags": (JSON_TEXT, True),
    "x_CostBasis": (TEXT, True),
    "x_IsUnpriced": (FLAG, False),
    "x_KeyId": (TEXT, True),
    "x_Model": (TEXT, True),
    "x_ProjectId": (TEXT, True),
    "x_TeamId": (TEXT, True),
    "x_TenantId": (TEXT, True),
}
_MTOK: Final = Decimal(1_000_000)
_GPU_HOUR_NS: Final = Decimal(3_600 * 10**9)
PLATFORM: Final = "platform"
ALLOCATION: Final = f"tollkeeper/{METHOD}"

Value = str | Decimal | datetime | bool | None
Row = dict[str, Value]


def usage_rows(charges: Iterable[Charge], billing: Period, periods: Sequence[Period], issuer: str) -> list[Row]:
    """Give charges as rows, one each. `issuer` is who invoices: the organisation that runs the gateway."""
    ends = {period.start_s: period for period in periods}
    return [_usage_row(charge, billing, ends[charge.period_start], issuer) for charge in charges]


def gpu_rows(device: str, device_model: str, cost: GpuCost, billing: Period, issuer: str) -> list[Row]:
    """Give one GPU's cost as one row per tenant and one for the platform's part; they sum to the GPU's cost."""
    owed = {tenant.tenant: tenant.total_pico_usd for tenant in cost.tenants}
    use = {tenant.tenant: tenant.used_ns for tenant in cost.tenants}
    rows = []
    for name, amount in (*owed.items(), (PLATFORM, cost.platform_pico_usd)):
        details = {
            "AllocatedRatio": format(Decimal(amount) / cost.total_pico_usd, "f") if cost.total_pico_usd else "0",
            "UsageUnit": "GPU-Nanoseconds",
            "UsageQuantity": use.get(name, 0),
            "x_IdlePolicy": cost.policy,
        }
        hours = Decimal(use.get(name, 0)) / _GPU_HOUR_NS
        rows.append(
            _row(
                billing,
                cost.period,
                issuer,
                usd(amount),
                f"GPU time of {device_model or device}, allocated to {name}",
                ServiceCategory="Compute",
                ServiceSubcategory="Virtual Machines",
                ServiceName="GPU inference",
                ResourceId=device,
                ResourceName=device_model or device,
                ResourceType="GPU",
                ConsumedQuantity=hours.quantize(Decimal("1e-12")),
                ConsumedUnit="GPU-Hours",
                AllocatedMethodId=ALLOCATION,
                AllocatedMethodDetails=json.dumps(details, sort_keys=True),
                AllocatedResourceId=name,
                AllocatedResourceName=name,
                AllocatedTags=json.dumps({"tenant": name} if name != PLATFORM else {}),
                SubAccountId=None if name == PLATFORM else name,
                SubAccountName=None if name == PLATFORM else name,
                SubAccountType=None if name == PLATFORM else "Tenant",
                x_TenantId=None if name == PLATFORM else name,
                x_CostBasis="gpu_rate",
                SkuId=f"gpu/{device_model or device}",
                SkuMeter="gpu_time",
                SkuPriceId=f"gpu/{device_model or device}/{'+'.join(cost.rate_versions) or 'unrated'}",
                **_whole(usd(amount)),
            )
        )
    return rows


def _usage_row(charge: Charge, billing: Period, period: Period, issuer: str) -> Row:
    amount = usd(charge.amount_pico_usd or 0)
    unpriced = charge.amount_pico_usd is None
    per_request = charge.meter == REQUEST
    quantity = Decimal(charge.quantity) if per_request else Decimal(charge.quantity) / _MTOK
    unit = None if charge.unit_pico_usd is None else usd(charge.unit_pico_usd * (1 if per_request else int(_MTOK)))
    what = f"{charge.meter} of {charge.model or 'no model'} by {charge.provider or 'no provider'}"
    tags = {"project": charge.project, "team": charge.team}
    return _row(
        billing,
        period,
        issuer,
        amount,
        f"Unpriced usage, cost unknown: {what}" if unpriced else what,
        ServiceProviderName=charge.provider or issuer,
        HostProviderName=charge.provider or issuer,
        ServiceName=charge.model or "unknown model",
        SubAccountId=charge.team or None,
        SubAccountName=charge.team or None,
        SubAccountType="Team" if charge.team else None,
        BillingAccountId=charge.tenant or "none",
        BillingAccountName=charge.tenant or None,
        BillingAccountType="Tenant",
        SkuId=f"{charge.provider or 'no provider'}/{charge.model or 'no model'}",
        SkuMeter=charge.meter,
        SkuPriceId="/".join(
            (charge.price_version or "unpriced", charge.meter, "whole" if unit is None else str(charge.unit_pico_usd))
        ),
        **(_whole(amount) if unit is None else _by_unit(unit, quantity, per_request=per_request)),
        ConsumedQuantity=Decimal(charge.quantity),
        ConsumedUnit="Requests" if per_request else "Tokens",
        ResourceId=charge.model or None,
        ResourceName=charge.model or None,
        ResourceType="Model" if charge.model else None,
        Tags=json.dumps({name: value for name, value in tags.items() if value}),
        x_CostBasis=charge.basis,
        x_IsUnpriced=unpriced,
        x_KeyId=charge.key or None,
        x_Model=charge.model or None,
        x_ProjectId=charge.project or None,
        x_TeamId=charge.team or None,
        x_TenantId=charge.tenant or None,
    )


def _by_unit(price: Decimal, quantity: Decimal, *, per_request: bool) -> Row:
    return {
        "ListUnitPrice": price,
        "ContractedUnitPrice": price,
        "PricingCategory": "Standard",
        "PricingQuantity": quantity,
        "PricingUnit": "Requests" if per_request else "1000000 Tokens",
    }


def _whole(amount: Decimal) -> Row:
    """Price what has no price by the token as one unit: FOCUS lets no usage be without a unit price."""
    return {**_by_unit(amount, Decimal(1), per_request=False), "PricingCategory": "Other", "PricingUnit": "Units"}


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
        "InvoiceIssuerName": issuer,
        "ServiceProviderName": issuer,
        "ServiceCategory": "AI and Machine Learning",
        "ServiceSubcategory": "Generative AI",
        "x_IsUnpriced": False,
        **values,
    }
    return row | {"ProviderName": row["ServiceProviderName"], "PublisherName": row["HostProviderName"]}
