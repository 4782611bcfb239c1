"""The table of finding functions by kind of rule."""

from collections.abc import Mapping
from typing import Final

from analytics.alerts.abuse import abuse
from analytics.alerts.machines import gpu_faults, ledger_mismatches, saturation, telemetry_loss
from analytics.alerts.slo_burn import slo_burns
from analytics.alerts.sources import Source
from analytics.alerts.spending import (
    bill_mismatches,
    budget_forecasts,
    budget_thresholds,
    price_changes_told,
    spend_anomalies,
    unpriced_usage,
)
from contracts.rules.alerts import RuleKind

SOURCES: Final[Mapping[RuleKind, Source]] = {
    "budget_threshold": budget_thresholds,
    "budget_forecast": budget_forecasts,
    "spend_anomaly": spend_anomalies,
    "slo_burn": slo_burns,
    "saturation": saturation,
    "gpu_fault": gpu_faults,
    "telemetry_loss": telemetry_loss,
    "ledger_mismatch": ledger_mismatches,
    "unpriced_usage": unpriced_usage,
    "bill_mismatch": bill_mismatches,
    "price_change": price_changes_told,
    "abuse": abuse,
}
