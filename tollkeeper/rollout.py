"""`tollkeeper rollout`: a candidate beside an incumbent on a route, through the control plane; how both did, from the
store."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from contracts.errors import ConfigurationError
from tollkeeper.control_client import ControlClient, path_segment
from tollkeeper.open_store import open_store
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.tenants import control_port

app = typer.Typer(help="Candidates that take a growing share of a route.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The rollout's id.")]
Reason = Annotated[str, typer.Option(help="Why; for the audit trail.")]
_PATH = "/v1/rollouts"


@app.command("create")
def create(
    name: Name,
    route: Annotated[str, typer.Option(help="The route that applications ask for.")],
    incumbent: Annotated[str, typer.Option(help="The model that answers there.")],
    candidate: Annotated[str, typer.Option(help="The model that is tried.")],
    file: Annotated[
        Path | None, typer.Argument(help="YAML or JSON with steps, guards, shadow, tenants; the defaults else.")
    ] = None,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Begin a rollout with its first step. Gateways follow within a second."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        rules = {} if file is None else _read_rules(file)
        body = {"id": name, "route": route, "incumbent": incumbent, "candidate": candidate, "rules": rules}
        made = client.post(_PATH, body)
    _show(made, "begun", as_json)


@app.command("list")
def list_all(data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """List rollouts."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        found = client.get_all(_PATH)
    if as_json:
        print_json(found)
    else:
        columns = ("id", "route", "incumbent", "candidate", "state", "percent", "reason")
        print_table(columns, found, _cell, "no rollouts yet; tollkeeper rollout create NAME --route ...")


@app.command("show")
def show(name: Name, data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """Show what gateways see of a rollout now: both arms over the last minutes, and bounds that are passed."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
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
    """Keep the share as it is; bounds still hold."""
    _act("pause", name, reason, data, control_url, as_json)


@app.command("resume")
def resume(
    name: Name, reason: Reason = "", data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False
) -> None:
    """Go on; or begin again at the first step what was rolled back or aborted."""
    _act("resume", name, reason, data, control_url, as_json)


@app.command("advance")
def advance(
    name: Name, reason: Reason = "", data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False
) -> None:
    """Take the next step now."""
    _act("advance", name, reason, data, control_url, as_json)


@app.command("promote")
def promote(
    name: Name, reason: Reason = "", data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False
) -> None:
    """Put the candidate in the incumbent's place on the route."""
    _act("promote", name, reason, data, control_url, as_json)


@app.command("abort")
def abort(
    name: Name, reason: Reason = "", data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False
) -> None:
    """Give everything back to the incumbent."""
    _act("abort", name, reason, data, control_url, as_json)


@app.command("delete")
def delete(name: Name, data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """Delete a rollout that has ended; its records stay."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        deleted = client.delete(f"{_PATH}/{path_segment(name)}")
    if as_json:
        print_json(deleted)
    else:
        typer.echo(f"rollout {deleted['id']} deleted")


@app.command("report")
def report(
    name: Name,
    hours: Annotated[float, typer.Option(min=0.01, max=9_480, help="Of the last so many.")] = 24,
    tenant: Annotated[str, typer.Option(help="Of one tenant's requests; copies are the platform's.")] = "",
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Compare both arms, and copies with their originals: each figure with its 95 % interval."""
    from analytics.comparison.rollout_report import rollout_report  # here: it loads for seconds

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
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        changed = client.post(f"{_PATH}/{path_segment(name)}/{action}", {"reason": reason})
    _show(changed, str(changed["state"]), as_json)


def _show(rollout: Mapping[str, Any], what: str, as_json: bool) -> None:
    if as_json:
        print_json(rollout)
        return
    who = f"{rollout['candidate']} has {rollout['percent']:g} % of {rollout['incumbent']} on {rollout['route']}"
    typer.echo(f"rollout {rollout['id']} {what}: {who}")


def _read_rules(file: Path) -> dict[str, Any]:
    try:
        rules = yaml.safe_load(file.read_text())
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"{file} is neither YAML nor JSON: {error}") from error
    if not isinstance(rules, dict):
        raise ConfigurationError(f"{file} must hold a rollout's rules, such as steps: [{{percent: 5}}]")
    return rules


def _cell(row: Mapping[str, Any], column: str) -> str:
    value = row[column]
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
