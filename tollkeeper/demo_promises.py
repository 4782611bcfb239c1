"""What the demonstration can tell Slack: a budget that its traffic passes, and an objective that its traffic breaks."""

from collections.abc import Sequence
from typing import Final

from contracts.errors import TollkeeperError
from tollkeeper.control_client import ControlClient

# A minute of the demonstration's traffic costs some ten-thousandths of a dollar, and no answer begins within 10 ms.
_BUDGET_USD: Final = "0.0001"
_PROMISED_MS: Final = "10"


def make_promises(control: ControlClient, tenant: str, model: str, run_id: str, slack: str) -> list[str]:
    """Make a budget, an objective and rules that tell a Slack webhook of both; give their paths, users first.

    Raises what the control plane says where it refuses; what was made before then is deleted.
    """
    channel = f"{run_id}-slack"
    rule = {"tenant": tenant, "channels": [channel]}
    promise = {"indicator": "ttft", "thresholds_ms": {"ttft": _PROMISED_MS}, "target_percent": "99"}
    budget = {"level": "tenant", "period": "month", "amount_usd": _BUDGET_USD, "is_hard": False, "thresholds": [50]}
    wanted: tuple[tuple[str, dict[str, object]], ...] = (
        ("/v1/alert-channels", {"id": channel, "kind": "slack", "address": slack, "tenant": tenant}),
        (f"/v1/tenants/{tenant}/budgets", budget),
        ("/v1/slos", {"id": f"{run_id}-ttft", "tenant": tenant, "model": model, **promise}),
        ("/v1/alert-rules", {"id": f"{run_id}-money", "kind": "budget_threshold", **rule}),
        ("/v1/alert-rules", {"id": f"{run_id}-promise", "kind": "slo_burn", **rule}),
    )
    made: list[str] = []
    try:
        for path, body in wanted:
            made.insert(0, f"{path}/{control.post(path, body)['id']}")
    except TollkeeperError:
        end_promises(control, made)
        raise
    return made


def end_promises(control: ControlClient, paths: Sequence[str]) -> None:
    """Delete what `make_promises` made."""
    for path in paths:
        control.delete(path)
