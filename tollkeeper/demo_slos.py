"""The demo's budget, objective and alert rules: they notify Slack of a budget threshold and of a missed SLO."""

from collections.abc import Sequence
from typing import Final

from contracts.errors import TollkeeperError
from tollkeeper.control_client import ControlClient

# A minute of the demo's traffic costs about 0.0005 USD.
_BUDGET_USD: Final = "0.0001"
SLO_MS: Final = 400
# Half of the requests: then only the slowest pair of burn-rate windows can alert, and fast requests end the alert
# within the demo. An objective of 99 % would stay missed for hours to days, the length of its windows.
_TARGET_PERCENT: Final = "50"


def make_slos(control: ControlClient, tenant: str, model: str, run_id: str, slack: str) -> list[str]:
    """Create a budget, an objective and rules that notify a Slack webhook; return their paths in order of deletion.

    Raises TollkeeperError if the control plane refuses one; objects created before it are deleted.
    """
    channel = channel_of(run_id)
    rule = {"tenant": tenant, "channels": [channel]}
    objective = {"indicator": "ttft", "thresholds_ms": {"ttft": str(SLO_MS)}, "target_percent": _TARGET_PERCENT}
    budget = {"level": "tenant", "period": "month", "amount_usd": _BUDGET_USD, "is_hard": False, "thresholds": [50]}
    wanted: tuple[tuple[str, dict[str, object]], ...] = (
        ("/v1/alert-channels", {"id": channel, "kind": "slack", "address": slack, "tenant": tenant}),
        (f"/v1/tenants/{tenant}/budgets", budget),
        ("/v1/slos", {"id": objective_of(run_id), "tenant": tenant, "model": model, **objective}),
        ("/v1/alert-rules", {"id": f"{run_id}-money", "kind": "budget_threshold", **rule}),
        ("/v1/alert-rules", {"id": slo_rule_of(run_id), "kind": "slo_burn", **rule}),
    )
    made: list[str] = []
    try:
        for path, body in wanted:
            made.insert(0, f"{path}/{control.post(path, body)['id']}")
    except TollkeeperError:
        end_slos(control, made)
        raise
    return made


def channel_of(run_id: str) -> str:
    """Return the id of the channel that a run's rules notify."""
    return f"{run_id}-slack"


def objective_of(run_id: str) -> str:
    """Return the id of a run's objective."""
    return f"{run_id}-ttft"


def slo_rule_of(run_id: str) -> str:
    """Return the id of the rule that alerts on a run's objective."""
    return f"{run_id}-promise"


def end_slos(control: ControlClient, paths: Sequence[str]) -> None:
    """Delete the objects that `make_slos` created."""
    for path in paths:
        control.delete(path)
