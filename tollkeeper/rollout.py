"""`tollkeeper rollouts`: starts and controls rollouts via the control plane's API, and compares both arms."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from backends.http_client.control_plane import path_segment
from tollkeeper.control_client import ControlClient
from tollkeeper.open_store import open_store
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.resources.apps import examples_of, group_of
from tollkeeper.resources.table import BY_NAME

app = group_of("rollouts", without=("show",))

Name = Annotated[str, typer.Argument(metavar="ID", help="The rollout's id.")]
Reason = Annotated[str, typer.Option(help="Reason, for the audit log.")]
_PATH = "/v1/rollouts"


@app.command("show", epilog=examples_of(BY_NAME["rollouts"], "show"))
def show(name: Name, data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """Show both arms (candidate and incumbent) over the last minutes, as gateways see them, and violated guards."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        found = client.get(f"{_PATH}/{path_segment(name)}/standing")
    if as_json:
        print_json(found)
        return
    about = found["rollout"]
    typer.echo(f"{about['id']}: {about['state']} at {about['percent']:g} % ({about['reason']})")
    rows = [{"arm": arm, **found[arm]} for arm in ("incumbent", "candidate")]
    print_table(tuple(rows[0]), rows, _cell, "nothing was seen yet")
    for breach in found["breaches"]:
        typer.echo(breach)


@app.command("pause")
def pause(
    name: Name, reason: Reason = "", data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False
) -> None:
    """Pause a rollout at its current share. Guards stay active."""
    _act("pause", name, reason, data, control_url, as_json)


@app.command("resume")
def resume(
    name: Name, reason: Reason = "", data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False
) -> None:
    """Continue a paused rollout, or restart a rolled-back or aborted one at its first step."""
    _act("resume", name, reason, data, control_url, as_json)


@app.command("advance")
def advance(
    name: Name, reason: Reason = "", data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False
) -> None:
    """Start a rollout's next step now."""
    _act("advance", name, reason, data, control_url, as_json)


@app.command("promote")
def promote(
    name: Name, reason: Reason = "", data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False
) -> None:
    """Replace the incumbent by the candidate on the route. Ends the rollout."""
    _act("promote", name, reason, data, control_url, as_json)


@app.command("abort")
def abort(
    name: Name, reason: Reason = "", data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False
) -> None:
    """Stop the rollout: the incumbent answers everything."""
    _act("abort", name, reason, data, control_url, as_json)


@app.command("report")
def report(
    name: Name,
    hours: Annotated[float, typer.Option(min=0.01, max=9_480, help="Look-back window in hours.")] = 24,
    tenant: Annotated[
        str, typer.Option(help="Only this tenant's requests (default: all). Shadow copies belong to no tenant.")
    ] = "",
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Compare candidate with incumbent, and shadow copies with their originals, with 95 % confidence intervals."""
    from analytics.comparison.rollout_report import rollout_report  # imported here: it takes seconds

    with one_line_errors():
        now = datetime.now(UTC)
        with open_store(data, store_url, os.environ) as (store, _):
            found = rollout_report(store, name, now - timedelta(hours=hours), now, tenant or None)
    if as_json:
        print_json(found.as_json())
        return
    typer.echo(f"{name}: {found.incumbent_requests} requests of the incumbent, {found.candidate_requests} of the")
    typer.echo(f"candidate, {found.copies} copies")
    print_table(
        ("measure", "of", "incumbent", "candidate", "comparison", "95 %"),
        [line.as_row() for line in found.lines],
        _cell,
        "no request took part",
    )


def _act(action: str, name: str, reason: str, data: Path, control_url: str, as_json: bool) -> None:
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        changed = client.post(f"{_PATH}/{path_segment(name)}/{action}", {"reason": reason})
    _show(changed, str(changed["state"]), as_json)


def _show(rollout: Mapping[str, Any], what: str, as_json: bool) -> None:
    if as_json:
        print_json(rollout)
        return
    who = f"{rollout['candidate']} has {rollout['percent']:g} % of {rollout['incumbent']} on {rollout['route']}"
    typer.echo(f"rollout {rollout['id']} {what}: {who}")


def _cell(row: Mapping[str, Any], column: str) -> str:
    value = row[column]
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
