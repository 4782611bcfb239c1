"""Print a budget for `tollkeeper budgets show`: amount, current state, and passed thresholds."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import typer

from contracts.access.person import person_of
from tollkeeper.printing import print_table
from tollkeeper.resources.words import second_of

_UNITS: Final = {"usd": "USD", "gpu_milliseconds": "GPU ms"}
_STANDING: Final = (
    *("subject", "spent", "overdraft", "reserved", "remaining", "percent"),
    *("projected", "exhausted_at", "reported_at"),
)
_EVENTS: Final = ("at", "threshold", "subject", "spent", "amount", "webhook")


def print_budget(budget: Mapping[str, Any], allowed: str) -> None:
    """Print a budget as the control plane returned it; `allowed` is its amount and period as text."""
    typer.echo(f"budget {budget['id']} of tenant {budget['tenant_id']}: {allowed}")
    if budget["proposal"]:
        asked = ", ".join(f"{name} {value}" for name, value in budget["proposal"].items())
        typer.echo(f"proposed by {person_of(budget['proposed_by'])}, to be confirmed by another person: {asked}")
    state = budget["state"]
    if state is None:
        bounds = [f"{word} {second_of(budget[at])}" for word, at in (("from", "starts_at"), ("until", "ends_at"))]
        typer.echo(f"inactive now, valid {' '.join(bound for bound in bounds if not bound.endswith(' '))}")
    else:
        # The period "total" starts at the Unix epoch, which is not worth showing.
        has_start = budget["period"] != "total" or budget["starts_at"] is not None
        _print_standing(state, second_of(state["period_start"]) if has_start else "")
    if budget["events"]:
        typer.echo("thresholds passed, the latest first:")
        print_table(_EVENTS, budget["events"], _event_cell, "")
    elif budget["thresholds"]:
        typer.echo("no threshold passed yet")


def _print_standing(state: Mapping[str, Any], since: str) -> None:
    until = second_of(state["period_end"])
    begin, end = f"from {since} " if since else "", f"until {until}" if until else "without end"
    typer.echo(f"period     {begin}{end} ({state['time_zone']})")
    subjects = state["subjects"]
    if len(subjects) == 1:
        _print_one(subjects[0], _UNITS[state["unit"]], state["amount"], has_end=state["period_end"] is not None)
        return
    typer.echo(f"amounts    in {_UNITS[state['unit']]}, {state['amount']} for each")
    print_table(_STANDING, subjects, _standing_cell, "no spending yet")
    if state["has_more"]:
        typer.echo("and more subjects with less spending")


def _print_one(standing: Mapping[str, Any], unit: str, amount: str, *, has_end: bool) -> None:
    if standing["subject"]:
        typer.echo(f"subject    {standing['subject']}")
    if Decimal(standing["overdraft"]):
        spent = f"{standing['spent']} of {amount} {unit} ({standing['percent']}%)"
        typer.echo(f"spent      {spent}: a target ignored max_tokens")
        typer.echo(f"overdraft  {standing['overdraft']} {unit} of it, beyond the budget")
    else:
        typer.echo(f"spent      {standing['spent']} {unit} ({standing['percent']}%)")
    if standing.get("counted_since"):
        typer.echo(
            f"since      {second_of(standing['counted_since'])}, the budget's creation; without earlier spending"
        )
    elif Decimal(standing.get("from_ledger") or 0):
        typer.echo(f"of it      {standing['from_ledger']} {unit} from the ledger: earlier spending, and corrections")
    typer.echo(f"reserved   {standing['reserved']} {unit}, by requests in progress")
    typer.echo(f"remaining  {standing['remaining']} {unit}")
    if standing["projected"] is not None:
        typer.echo(f"forecast   {standing['projected']} {unit} by the period's end at this pace")
    elif has_end:
        typer.echo("forecast   none yet: less than a tenth of the period was counted")
    if standing["exhausted_at"]:
        typer.echo(f"exhausted  {second_of(standing['exhausted_at'])} at this pace")
    typer.echo(f"reported   {second_of(standing['reported_at']) or 'never: no gateway has served it yet'}")


def _standing_cell(standing: Mapping[str, Any], column: str) -> str:
    if column in ("exhausted_at", "reported_at"):
        return second_of(standing[column])
    return "" if standing[column] is None else str(standing[column])


def _event_cell(event: Mapping[str, Any], column: str) -> str:
    if column == "at":
        return second_of(event["at"])
    if column == "threshold":
        return f"{event['threshold_percent']}%"
    if column == "webhook":
        return _delivery(event)
    return str(event[column])


def _delivery(event: Mapping[str, Any]) -> str:
    if event["delivered_at"]:
        return f"delivered {second_of(event['delivered_at'])}"
    if event["last_error"]:
        return f"{event['attempts']} attempts: {event['last_error']}"
    return ""
