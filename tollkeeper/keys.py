"""`tollkeeper keys`: the usual commands of a resource, and `rotate`."""

from typing import Annotated

import typer

from backends.http_client.control_plane import path_segment
from contracts.errors import ConfigurationError
from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json
from tollkeeper.resources.apps import group_of, whole_number

app = group_of("keys")

Tenant = Annotated[str, typer.Option("--tenant", help="The key's tenant.")]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id, key_...; `list` shows it.")]


@app.command("rotate")
def rotate(
    key: KeyId,
    tenant: Tenant,
    overlap_seconds: Annotated[
        str, typer.Option(help="Seconds for which the current secret still works; 0: it and earlier secrets stop now.")
    ],
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Replace a key's secret. The new one is printed once; id, limits and budgets stay."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        body = {"overlap_seconds": whole_number(overlap_seconds)}
        rotated = client.post(f"{_key_path(tenant, key)}/rotate", body)
    if as_json:
        print_json(rotated)
        return
    typer.echo(rotated["secret"])
    ends = "no longer works" if body["overlap_seconds"] == 0 else f"works for {overlap_seconds} s more"
    typer.echo(f"key {rotated['id']} of tenant {tenant}: the former secret {ends}; keep the line above safe", err=True)


@app.command("revoke", hidden=True)
def revoke(
    key: KeyId,
    tenant: Tenant,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Revoke a key: an older name of `delete`."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        revoked = client.delete(_key_path(tenant, key))
    if as_json:
        print_json(revoked)
    else:
        typer.echo(f"key {revoked['id']} revoked at {revoked['revoked_at']}")


def _key_path(tenant: str, key: str) -> str:
    if key.startswith("tk-"):
        # If sent, the secret would be in a URL, and in logs of URLs.
        raise ConfigurationError("that is a key's secret, not its id; `tollkeeper keys list` shows the ids")
    return f"/v1/tenants/{path_segment(tenant)}/keys/{path_segment(key)}"
