"""Texts about alerts: names of kinds of rules, and durations."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

KIND_WORDS: Final[Mapping[str, str]] = {
    "budget_threshold": "Budget threshold",
    "budget_forecast": "Budget will be exceeded",
    "spend_anomaly": "Unusual spending",
    "slo_burn": "Error budget burns",
    "saturation": "Engine saturated",
    "gpu_fault": "GPU fault",
    "telemetry_loss": "Records missing",
    "ledger_mismatch": "Records and counts differ",
    "unpriced_usage": "Usage without a price",
    "bill_mismatch": "Provider's bill differs",
    "price_change": "List price changed",
    "abuse": "Abuse of a key",
}


def since_words(began: str, ended: str | None, now: datetime) -> str:
    """Return the duration from `began` to `ended`, or to `now` if it has not ended: "3 min", "5 h", "2 days"."""
    until = now if ended is None else datetime.fromisoformat(ended)
    minutes = max(int((until - datetime.fromisoformat(began)).total_seconds() // 60), 0)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 2_880 else f"{minutes // 1_440} days"
