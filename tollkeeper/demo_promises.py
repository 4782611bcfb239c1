"""What the demonstration tells Slack: a budget is passed; an objective is broken by a slow model, and kept again."""

from collections.abc import Sequence
from typing import Final

from contracts.errors import TollkeeperError
from tollkeeper.control_client import ControlClient

# A minute of the demonstration's traffic costs some ten-thousandths of a dollar.
_BUDGET_USD: Final = "0.0001"
PROMISED_MS: Final = 400
# Half of the requests: then the slowest pair of windows alone can burn, and requests that are in time again end it
# within the demonstration. A promise of 99 % stays broken for as long as its windows remember, hours to days.
_TARGET_PERCENT: Final = "50"


def make_promises(control: ControlClient, tenant: str, model: str, run_id: str, slack: str) -> list[str]:
    """Make a budget, an objective and rules that tell a Slack webhook of both; return their paths, users first.

    Raises what the control plane says where it refuses; what was made before then is deleted.
    """
    channel = channel_of(run_id)
    rule = {"tenant": tenant, "channels": [channel]}
    promise = {"indicator": "ttft", "thresholds_ms": {"ttft": str(PROMISED_MS)}, "target_percent": _TARGET_PERCENT}
    budget = {"level": "tenant", "period": "month", "amount_usd": _BUDGET_USD, "is_hard": False, "thresholds": [50]}
    wanted: tuple[tuple[str, dict[str, object]], ...] = (
        ("/v1/alert-channels", {"id": channel, "kind": "slack", "address": slack, "tenant": tenant}),
        (f"/v1/tenants/{tenant}/budgets", budget),
        ("/v1/slos", {"id": objective_of(run_id), "tenant": tenant, "model": model, **promise}),
        ("/v1/alert-rules", {"id": f"{run_id}-money", "kind": "budget_threshold", **rule}),
        ("/v1/alert-rules", {"id": promise_rule_of(run_id), "kind": "slo_burn", **rule}),
    )
    made: list[str] = []
    try:
        for path, body in wanted:
            made.insert(0, f"{path}/{control.post(path, body)['id']}")
    except TollkeeperError:
        end_promises(control, made)
        raise
    return made


def channel_of(run_id: str) -> str:
    """Name the channel that a run's rules tell."""
    return f"{run_id}-slack"


def objective_of(run_id: str) -> str:
    """Name a run's objective."""
    return f"{run_id}-ttft"


def promise_rule_of(run_id: str) -> str:
    """Name the rule that tells of a run's objective."""
    return f"{run_id}-promise"


def end_promises(control: ControlClient, paths: Sequence[str]) -> None:
    """Delete what `make_promises` made."""
    for path in paths:
        control.delete(path)
