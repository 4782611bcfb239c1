"""`tollkeeper tenants`: organisations, through the control plane's HTTP."""

import os
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tollkeeper.control_client import ControlClient, path_segment
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.ports import Ports
from tollkeeper.printing import one_line_errors, print_json, print_table

app = typer.Typer(help="Organisations that pay.", no_args_is_help=True)


@app.command("create")
def create(
    tenant: Annotated[str, typer.Argument(help="Its id: a-z, 0-9 and -; never changes.")],
    name: Annotated[str, typer.Option(help="For people; the id where left out.")] = "",
    time_zone: Annotated[str, typer.Option(help="The calendar of its budgets.")] = "UTC",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Create a tenant."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        created = client.post("/v1/tenants", {"id": tenant, "name": name or tenant, "time_zone": time_zone})
    if as_json:
        print_json(created)
    else:
        typer.echo(f"tenant {created['id']} created; next: tollkeeper keys create --tenant {created['id']} --name NAME")


@app.command("list")
def list_all(data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """List tenants."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        tenants = client.get_all("/v1/tenants")
    if as_json:
        print_json(tenants)
    else:
        columns = ("id", "name", "time_zone", "status", "created_at")
        print_table(columns, tenants, _cell, "no tenants yet; tollkeeper tenants create ID")


@app.command("content")
def content(
    tenant: Annotated[str, typer.Argument(help="The tenant's id.")],
    keeps: Annotated[bool, typer.Option("--keep/--no-keep", help="Keep what its requests say, redacted, or stop.")],
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Switch the keeping of prompts and answers on or off; off unless it was switched on. What is kept expires."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        changed = client.patch(f"/v1/tenants/{path_segment(tenant)}", {"keeps_content": keeps})
    if as_json:
        print_json(changed)
    else:
        typer.echo(f"tenant {tenant}: what its requests say is {'kept, redacted' if keeps else 'not kept'}")


@app.command("audit")
def audit(
    tenant: Annotated[str, typer.Argument(help="The tenant's id.")],
    is_on: Annotated[bool, typer.Option("--on/--off", help="Write each of its requests into the audit log, or stop.")],
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Switch the audit of requests on or off: who asked which model, and hashes of what; off unless switched on."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        changed = client.patch(f"/v1/tenants/{path_segment(tenant)}", {"audits_requests": is_on})
    if as_json:
        print_json(changed)
    else:
        typer.echo(f"tenant {tenant}: requests are {'audited' if is_on else 'not audited'}")


def control_port() -> int:
    """Give the control plane's port as this shell's environment has it."""
    return Ports.from_environment(os.environ).control


def _cell(tenant: Mapping[str, Any], column: str) -> str:
    if column == "status":
        return "active" if tenant["is_active"] else "inactive"
    if column == "created_at":
        return str(tenant[column])[:19]
    return str(tenant[column])
