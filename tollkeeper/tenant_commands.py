"""`tollkeeper tenants`: the usual commands of a resource, older switches, and export and erasure of a tenant."""

from typing import Annotated

import typer

from backends.http_client.control_plane import path_segment
from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json
from tollkeeper.privacy import erase_tenant_command, export_tenant_command
from tollkeeper.resources.apps import group_of

app = group_of("tenants")
app.command("erase")(erase_tenant_command)
app.command("export")(export_tenant_command)

TenantId = Annotated[str, typer.Argument(metavar="ID", help="The tenant's id.")]


@app.command("content", hidden=True)
def content(
    tenant: TenantId,
    keeps: Annotated[bool, typer.Option("--keep/--no-keep", help="Store its prompts and answers, redacted.")],
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Store a tenant's prompts and answers, or not. Older name of `set --content`."""
    _switch(
        tenant,
        "keeps_content",
        keeps,
        f"what its requests say is {'kept, redacted' if keeps else 'not kept'}",
        data,
        control_url,
        as_json,
    )


@app.command("audit", hidden=True)
def audit(
    tenant: TenantId,
    is_on: Annotated[bool, typer.Option("--on/--off", help="Write each of its requests into the audit log.")],
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Audit a tenant's requests, or stop. Older name of `set --audit`."""
    _switch(
        tenant,
        "audits_requests",
        is_on,
        f"requests are {'audited' if is_on else 'not audited'}",
        data,
        control_url,
        as_json,
    )


def _switch(tenant: str, field: str, is_on: bool, said: str, data: Data, control_url: str, as_json: bool) -> None:
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        changed = client.patch(f"/v1/tenants/{path_segment(tenant)}", {field: is_on})
    if as_json:
        print_json(changed)
    else:
        typer.echo(f"tenant {tenant}: {said}")
