"""`tollkeeper keys`: API keys, through the control plane's HTTP."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from contracts.errors import ConfigurationError
from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.tenants import control_port

app = typer.Typer(help="Keys of applications.", no_args_is_help=True)

Tenant = Annotated[str, typer.Option("--tenant", help="The tenant that pays.")]


@app.command("create")
def create(
    tenant: Tenant,
    name: Annotated[str, typer.Option(help="What it is for.")],
    team: Annotated[str, typer.Option(help="The team it belongs to.")] = "",
    project: Annotated[str, typer.Option(help="The project it belongs to; needs --team.")] = "",
    models: Annotated[list[str] | None, typer.Option("--model", help="May use only this; repeat for more.")] = None,
    expires_at: Annotated[str, typer.Option(help="Refused from then on, such as 2027-01-31T00:00:00Z.")] = "",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Create a key. Its secret is shown once, now."""
    body = {
        "name": name,
        "team": team or None,
        "project": project or None,
        "models": models or None,
        "expires_at": expires_at or None,
    }
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        created = client.post(_path(tenant), body)
    if as_json:
        print_json(created)
        return
    typer.echo(created["secret"])
    typer.echo(f"key {created['id']} of tenant {tenant}; the line above is shown this once, keep it safe", err=True)


@app.command("list")
def list_all(tenant: Tenant, data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """List a tenant's keys, revoked ones too."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        keys = client.get_all(_path(tenant))
    if as_json:
        print_json(keys)
    else:
        columns = ("id", "name", "hint", "team_id", "project_id", "status", "created_at")
        print_table(columns, keys, _cell, f"no keys yet; tollkeeper keys create --tenant {tenant} --name NAME")


@app.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(help="The key's id, key_...; `list` shows it.")],
    tenant: Tenant,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Revoke a key, on every gateway within a second. This cannot be undone."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        if key.startswith("tk-"):
            # Sent on, the secret would stand in a URL and in whatever logs URLs.
            raise ConfigurationError("that is a key's secret, not its id; `tollkeeper keys list` shows the ids")
        revoked = client.delete(f"{_path(tenant)}/{quote(key, safe='')}")
    if as_json:
        print_json(revoked)
    else:
        typer.echo(f"key {revoked['id']} revoked at {revoked['revoked_at']}")


def _path(tenant: str) -> str:
    return f"/v1/tenants/{quote(tenant, safe='')}/keys"


def _cell(key: Mapping[str, Any], column: str) -> str:
    if column == "status":
        return _status(key)
    if column == "created_at":
        return str(key[column])[:19]
    if column == "hint":
        return f"…{key[column]}"
    return str(key[column])


def _status(key: Mapping[str, Any]) -> str:
    if key["revoked_at"]:
        return "revoked"
    expires_at = key["expires_at"]
    return "expired" if expires_at and datetime.fromisoformat(expires_at) <= datetime.now(UTC) else "active"
