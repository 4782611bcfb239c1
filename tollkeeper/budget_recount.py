"""`tollkeeper budgets recount`: set a budget's spending to the cost of the stored requests."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from analytics.cost.budget_ledger import SubjectLedger, budget_ledger
from contracts.errors import ConfigurationError
from contracts.pricing.money import pico_usd
from contracts.recording.moments import unix_ns
from contracts.rules.limits import Level, Scope
from contracts.rules.rule_words import exact_text
from tollkeeper.control_client import ControlClient
from tollkeeper.open_store import open_store
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.resources.apps import located
from tollkeeper.resources.table import BY_NAME
from tollkeeper.resources.words import second_of

_MOST_SUBJECTS: Final = 10_000  # maximum number of subjects in one recount
_COLUMNS: Final = ("subject", "spent", "after", "difference", "requests", "free")


def recount_command(
    budget: Annotated[str, typer.Argument(metavar="ID", help="The budget's id, bud_...")],
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant it belongs to (default: found by the id).")] = "",
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Apply the recount without asking.")] = False,
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Recalculate a budget's spending from the stored requests of its current period.

    Requests that failed with an error status cost nothing. Requests from before the budget's creation count if they are
    in its period. Requests in progress, or not yet in the store, stay counted.
    """
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        path, _ = located(client, BY_NAME["budgets"], budget, {"tenant": tenant} if tenant else {})
        shown = client.get(path)
        ledger = _ledger_of(shown, data, store_url)
        if not ledger:
            raise ConfigurationError(f"the store has no request under budget {budget} in its current period")
        body = {
            "period_start": shown["state"]["period_start"],
            "subjects": [
                {"subject": one.subject, "adjustment_usd": exact_text("pico_usd", one.adjustment)} for one in ledger
            ],
        }
        planned = client.post(f"{path}/recount", body)
        if not as_json:
            _print_plan(shown, planned, ledger)
        wants = not is_dry and (is_confirmed or (not as_json and _has_change(planned) and _asked()))
        done = client.post(f"{path}/recount", {**body, "apply": True}) if wants else planned
    if as_json:
        print_json({**done, "requests": [asdict(one) for one in ledger]})
    elif wants:
        typer.echo(f"budget {budget} recounted; gateways apply it within seconds")
    elif not _has_change(planned):
        typer.echo("nothing to correct")
    else:
        typer.echo("not applied; --yes applies it")


def _ledger_of(shown: Mapping[str, Any], data: Path, store_url: str) -> list[SubjectLedger]:
    """Return the stored cost per subject of a budget. Raises ConfigurationError if the budget cannot be recounted."""
    state = shown["state"]
    if state is None:
        raise ConfigurationError(f"budget {shown['id']} is inactive: it has not started or has ended")
    if shown["amount_usd"] is None:
        raise ConfigurationError(f"budget {shown['id']} is in GPU milliseconds; only budgets in USD can be recounted")
    scope = Scope(shown["tenant_id"], cast(Level, shown["level"]), shown["subject"], shown["model"] or "")
    start_ns, end_ns = _unix_ns(state["period_start"]), state["period_end"] and _unix_ns(state["period_end"])
    with open_store(data, store_url, os.environ) as (store, _):
        found = budget_ledger(store, scope, start_ns, end_ns, _unix_ns(shown["created_at"]))
    return sorted(found, key=lambda one: -abs(one.adjustment))[:_MOST_SUBJECTS]


def _unix_ns(moment: str) -> int:
    return unix_ns(datetime.fromisoformat(moment))


def _has_change(planned: Mapping[str, Any]) -> bool:
    return any(one["spent_before"] != one["spent_after"] for one in planned["subjects"])


def _asked() -> bool:
    return typer.confirm("Apply?", default=False)


def _print_plan(shown: Mapping[str, Any], planned: Mapping[str, Any], ledger: list[SubjectLedger]) -> None:
    start, until = (second_of(shown["state"][name]) for name in ("period_start", "period_end"))
    typer.echo(f"budget {shown['id']} of tenant {shown['tenant_id']}, amounts in USD")
    typer.echo(f"period from {start} {f'until {until}' if until else 'without end'}")
    requests = {one.subject: one for one in ledger}

    def cell(one: Mapping[str, Any], column: str) -> str:
        before, after = (_pico(one[name]) for name in ("spent_before", "spent_after"))
        known = requests[one["subject"]]
        cells = {
            "subject": one["subject"],
            "spent": one["spent_before"],
            "after": one["spent_after"],
            "difference": exact_text("pico_usd", after - before),
            "requests": str(known.requests),
            "free": str(known.free_requests),
        }
        return str(cells[column])

    print_table(_COLUMNS, planned["subjects"], cell, "")


def _pico(text: str) -> int:
    return pico_usd(Decimal(text))
