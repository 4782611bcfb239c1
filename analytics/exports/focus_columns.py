"""The FOCUS columns that are exported: type, nullability, and allowed values.

They follow the Cost and Usage dataset of FOCUS 1.3 (focus.finops.org, and the requirements model published with it).
ProviderName and PublisherName are the names of version 1.2, included for its readers.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final

TEXT, NUMBER, TIME, KEY_VALUES, OBJECT, FLAG = "text", "number", "time", "key_values", "object", "flag"

Value = str | Decimal | datetime | bool | None
Row = dict[str, Value]

COLUMNS: Final[Mapping[str, tuple[str, bool]]] = {
    "AllocatedMethodDetails": (OBJECT, True),
    "AllocatedMethodId": (TEXT, True),
    "AllocatedResourceId": (TEXT, True),
    "AllocatedResourceName": (TEXT, True),
    "AllocatedTags": (KEY_VALUES, True),
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
    "InvoiceId": (TEXT, False),
    "InvoiceIssuerName": (TEXT, False),
    "ListCost": (NUMBER, False),
    "ListUnitPrice": (NUMBER, True),
    "PricingCategory": (TEXT, True),
    "PricingCurrency": (TEXT, False),
    "PricingCurrencyContractedUnitPrice": (NUMBER, True),
    "PricingCurrencyEffectiveCost": (NUMBER, False),
    "PricingCurrencyListUnitPrice": (NUMBER, True),
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
    "SkuPriceDetails": (KEY_VALUES, True),
    "SkuPriceId": (TEXT, True),
    "SubAccountId": (TEXT, True),
    "SubAccountName": (TEXT, True),
    "SubAccountType": (TEXT, True),
    "Tags": (KEY_VALUES, True),
    "x_AdjustmentId": (TEXT, True),
    "x_CostBasis": (TEXT, True),
    "x_GpuModel": (TEXT, True),
    "x_IsEstimated": (FLAG, False),
    "x_IsUnpriced": (FLAG, False),
    "x_KeyId": (TEXT, True),
    "x_Model": (TEXT, True),
    "x_PriceVersion": (TEXT, True),
    "x_ProjectId": (TEXT, True),
    "x_TeamId": (TEXT, True),
    "x_TenantId": (TEXT, True),
}

ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "ChargeCategory": frozenset({"Usage", "Purchase", "Tax", "Credit", "Adjustment"}),
    "ChargeClass": frozenset({"Correction"}),
    "ChargeFrequency": frozenset({"One-Time", "Recurring", "Usage-Based"}),
    "PricingCategory": frozenset({"Standard", "Dynamic", "Committed", "Other"}),
}

# Service subcategories, by the categories that apply to models and machines.
SUBCATEGORIES: Final[Mapping[str, frozenset[str]]] = {
    "AI and Machine Learning": frozenset(
        {
            *("AI Platforms", "Bots", "Generative AI", "Machine Learning", "Natural Language Processing"),
            "Other (AI and Machine Learning)",
        }
    ),
    "Compute": frozenset(
        {
            *("Containers", "End User Computing", "Quantum Compute", "Serverless Compute", "Virtual Machines"),
            "Other (Compute)",
        }
    ),
}

# The specification's units of time and count; data sizes are not used here. Unlisted units of count are allowed if
# capitalised.
TIME_UNITS: Final = ("Years", "Months", "Days", "Hours", "Minutes", "Seconds")
