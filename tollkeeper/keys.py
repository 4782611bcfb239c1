"""`tollkeeper keys`: the usual commands of a resource, and `rotate`."""

from typing import Annotated

import typer

from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json
from tollkeeper.resources.apps import group_of, located, whole_number
from tollkeeper.resources.table import BY_NAME

app = group_of("keys")

Tenant = Annotated[str, typer.Option("--tenant", help="The tenant it belongs to (default: found by the id).")]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id, key_...; `list` shows it.")]


@app.command("rotate")
def rotate(
    key: KeyId,
    overlap_seconds: Annotated[
        str, typer.Option(help="Seconds for which the current secret still works; 0: it and earlier secrets stop now.")
    ],
    tenant: Tenant = "",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Replace a key's secret. The new one is printed once; id, limits and budgets stay."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        body = {"overlap_seconds": whole_number(overlap_seconds)}
        path, parents = _located(client, tenant, key)
        rotated = client.post(f"{path}/rotate", body)
    if as_json:
        print_json(rotated)
        return
    typer.echo(rotated["secret"])
    ends = "no longer works" if body["overlap_seconds"] == 0 else f"works for {overlap_seconds} s more"
    typer.echo(
        f"key {rotated['id']} of tenant {parents['tenant']}: the former secret {ends}; keep the line above safe",
        err=True,
    )


@app.command("revoke", hidden=True)
def revoke(
    key: KeyId,
    tenant: Tenant = "",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Revoke a key: an older name of `delete`."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        revoked = client.delete(_located(client, tenant, key)[0])
    if as_json:
        print_json(revoked)
    else:
        typer.echo(f"key {revoked['id']} revoked at {revoked['revoked_at']}")


def _located(client: ControlClient, tenant: str, key: str) -> tuple[str, dict[str, str]]:
    return located(client, BY_NAME["keys"], key, {"tenant": tenant} if tenant else {})
