"""`tollkeeper abuse`: incidents of misused keys that gateways reported, read from the control plane."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from backends.http_client.control_plane import path_segment
from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json, print_table

app = typer.Typer(help="Abuse incidents: floods, probing, harvesting of answers, shared keys.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The incident's id; `list` shows it.")]
_COLUMNS = ("last_at", "tenant", "key", "kind", "action", "peak", "limit", "throttled", "is_open", "id")


@app.command("list")
def list_incidents(
    is_open: Annotated[bool, typer.Option("--open/--all", help="Only open incidents, or all (default open).")] = True,
    tenant: Annotated[str, typer.Option(help="Only this tenant (default: all).")] = "",
    key: Annotated[str, typer.Option(help="Only this key id, key_... (default: all).")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of incidents, latest first.")] = 100,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """List incidents, latest first."""
    asked = {"limit": str(limit), "open": str(is_open).lower(), "tenant": tenant, "key": key}
    query = "&".join(f"{name}={path_segment(value)}" for name, value in asked.items() if value)
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        rows = client.get(f"/v1/abuse?{query}")["data"]
    if as_json:
        print_json(rows)
    else:
        print_table(_COLUMNS, rows, _cell, "no abuse" + (" is open; --all shows ended ones" if is_open else ""))


@app.command("explain")
def explain(incident: Id, data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """Explain an incident: what was counted, which action was taken, and when it ends."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        found = client.get(f"/v1/abuse/{path_segment(incident)}")
    if as_json:
        print_json(found)
        return
    for sentence in found["explanation"]:
        typer.echo(sentence)


def _cell(row: Mapping[str, Any], column: str) -> str:
    value = row[column]
    return "" if value is None else str(value)
