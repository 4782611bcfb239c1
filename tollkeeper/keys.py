"""`tollkeeper keys`: API keys, through the control plane's HTTP."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from contracts.errors import ConfigurationError
from tollkeeper.control_client import ControlClient, path_segment
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.rules import whole_number
from tollkeeper.tenants import control_port

app = typer.Typer(help="Keys of applications.", no_args_is_help=True)

Tenant = Annotated[str, typer.Option("--tenant", help="The tenant that pays.")]
KeyId = Annotated[str, typer.Argument(help="The key's id, key_...; `list` shows it.")]


@app.command("create")
def create(
    tenant: Tenant,
    name: Annotated[str, typer.Option(help="What it is for.")],
    team: Annotated[str, typer.Option(help="The team it belongs to.")] = "",
    project: Annotated[str, typer.Option(help="The project it belongs to; needs --team.")] = "",
    models: Annotated[list[str] | None, typer.Option("--model", help="May use only this; repeat for more.")] = None,
    expires_at: Annotated[str, typer.Option(help="Refused from then on, such as 2027-01-31T00:00:00Z.")] = "",
    addresses: Annotated[
        list[str] | None, typer.Option("--address", help="Usable only from this network, as 10.0.0.0/8; repeatable.")
    ] = None,
    endpoints: Annotated[
        list[str] | None, typer.Option("--endpoint", help="May use only this, as chat.completions; repeatable.")
    ] = None,
    priority: Annotated[str, typer.Option(help="Its best class: interactive, standard or batch.")] = "",
    max_reasoning_effort: Annotated[str, typer.Option(help="The most effort it may ask of a model, as low.")] = "",
    max_thinking_tokens: Annotated[str, typer.Option(help="The most reasoning tokens of one answer.")] = "",
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
        "addresses": addresses or None,
        "endpoints": endpoints or None,
        "priority": priority or None,
        "max_reasoning_effort": max_reasoning_effort or None,
        "max_thinking_tokens": whole_number(max_thinking_tokens) if max_thinking_tokens else None,
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


@app.command("rotate")
def rotate(
    key: KeyId,
    tenant: Tenant,
    overlap_seconds: Annotated[
        str, typer.Option(help="How long the present secret works on; 0 ends it, and earlier ones, at once.")
    ],
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Give a key another secret, shown once, now. Its id, limits and budgets stay."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        body = {"overlap_seconds": whole_number(overlap_seconds)}
        rotated = client.post(f"{_key_path(tenant, key)}/rotate", body)
    if as_json:
        print_json(rotated)
        return
    typer.echo(rotated["secret"])
    ends = "no longer works" if body["overlap_seconds"] == 0 else f"works for {overlap_seconds} s more"
    typer.echo(f"key {rotated['id']} of tenant {tenant}: the former secret {ends}; keep the line above safe", err=True)


@app.command("revoke")
def revoke(
    key: KeyId,
    tenant: Tenant,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Revoke a key, on every gateway within a second. This cannot be undone."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        revoked = client.delete(_key_path(tenant, key))
    if as_json:
        print_json(revoked)
    else:
        typer.echo(f"key {revoked['id']} revoked at {revoked['revoked_at']}")


def _key_path(tenant: str, key: str) -> str:
    if key.startswith("tk-"):
        # Sent on, the secret would stand in a URL and in whatever logs URLs.
        raise ConfigurationError("that is a key's secret, not its id; `tollkeeper keys list` shows the ids")
    return f"{_path(tenant)}/{path_segment(key)}"


def _path(tenant: str) -> str:
    return f"/v1/tenants/{path_segment(tenant)}/keys"


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
