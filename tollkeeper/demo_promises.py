"""What the demonstration can tell Slack: a budget that its traffic passes, and an objective that its traffic breaks."""

from collections.abc import Sequence
from typing import Final

from tollkeeper.control_client import ControlClient

# A minute of the demonstration's traffic costs some ten-thousandths of a dollar, and no answer begins within 10 ms.
_BUDGET_USD: Final = "0.0001"
_PROMISED_MS: Final = "10"


def make_promises(control: ControlClient, tenant: str, model: str, run_id: str, slack: str) -> list[str]:
    """Make a budget, an objective and rules that tell a Slack webhook of both; give their paths, users first.

    Raises what the control plane says where it refuses; what was made before then stays.
    """
    channel, objective = f"{run_id}-slack", f"{run_id}-ttft"
    control.post("/v1/alert-channels", {"id": channel, "kind": "slack", "address": slack, "tenant": tenant})
    stated = {"level": "tenant", "period": "month", "amount_usd": _BUDGET_USD, "is_hard": False, "thresholds": [50]}
    budget = control.post(f"/v1/tenants/{tenant}/budgets", stated)
    promise = {"indicator": "ttft", "thresholds_ms": {"ttft": _PROMISED_MS}, "target_percent": "99"}
    control.post("/v1/slos", {"id": objective, "tenant": tenant, "model": model, **promise})
    rules = {f"{run_id}-money": "budget_threshold", f"{run_id}-promise": "slo_burn"}
    for rule, kind in rules.items():
        control.post("/v1/alert-rules", {"id": rule, "kind": kind, "tenant": tenant, "channels": [channel]})
    return [
        *(f"/v1/alert-rules/{rule}" for rule in rules),
        f"/v1/slos/{objective}",
        f"/v1/tenants/{tenant}/budgets/{budget['id']}",
        f"/v1/alert-channels/{channel}",
    ]


def end_promises(control: ControlClient, paths: Sequence[str]) -> None:
    """Delete what `make_promises` made."""
    for path in paths:
        control.delete(path)
