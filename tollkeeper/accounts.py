"""`tollkeeper accounts`: people who sign in to the dashboard, managed via the control plane's API."""

import secrets
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from backends.http_client.control_plane import path_segment
from contracts.control import Role
from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json, print_table

app = typer.Typer(help="People who sign in to the dashboard.", no_args_is_help=True)

_PASSWORD_BYTES: Final = 15  # 120 bits, 20 letters


class PersonRole(StrEnum):
    """The roles of people. Role `directory` is for tokens only."""

    OWNER = Role.OWNER
    ADMIN = Role.ADMIN
    FINANCE = Role.FINANCE
    TEAM_LEAD = Role.TEAM_LEAD
    DEVELOPER = Role.DEVELOPER


User = Annotated[str, typer.Argument(help="The user's e-mail address or id (usr_...).")]
Tenant = Annotated[str, typer.Option(help="Only this tenant (default: all tenants).")]
Team = Annotated[
    str, typer.Option(help="Only this team of the tenant; required for role team_lead, optional for developer.")
]
FromInput = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input (default: generate one).")
]


@app.command("add")
def add(
    email: Annotated[str, typer.Argument(help="E-mail address to sign in with.")],
    role: Annotated[PersonRole, typer.Option(help="Role of the user.")],
    name: Annotated[str, typer.Option(help="Display name (default: the e-mail address).")] = "",
    tenant: Tenant = "",
    team: Team = "",
    password_stdin: FromInput = False,
    has_password: Annotated[
        bool,
        typer.Option(
            "--password/--no-password",
            help="Set a password, or none: the user then signs in by the identity provider only.",
        ),
    ] = True,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Create an account. A generated password is shown once."""
    password, is_ours = _password(password_stdin) if has_password else (None, False)
    body = {
        "email": email,
        "name": name or email,
        "role": role.value,
        "tenant": tenant or None,
        "team": team or None,
        "password": password,
    }
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        made = client.post("/v1/accounts", body)
    if as_json:
        print_json({**made, "password": password} if is_ours else made)
        return
    typer.echo(f"user {made['email']} may sign in as {_standing(made)}")
    if is_ours:
        typer.echo(f"password, shown this once: {password}")


@app.command("list")
def list_all(data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """List accounts."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        found = client.get_all("/v1/accounts")
    if as_json:
        print_json(found)
    else:
        columns = ("email", "name", "role", "signs in by", "status", "created_at")
        print_table(columns, found, _cell, "no accounts yet; tollkeeper accounts add EMAIL --role ROLE")


@app.command("grant")
def grant(
    user: User,
    role: Annotated[PersonRole, typer.Option(help="New role of the user.")],
    tenant: Annotated[str, typer.Option(help="Only this tenant.")] = "",
    team: Team = "",
    is_everywhere: Annotated[
        bool, typer.Option("--all-tenants", help="All tenants; an owner always sees all.")
    ] = False,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
) -> None:
    """Change an account's role and tenants. Takes effect when the user next loads a page."""
    if role is not PersonRole.OWNER and bool(tenant) == is_everywhere:
        raise typer.BadParameter("set the role's reach: --tenant TENANT, or --all-tenants")
    body = {"role": role.value, "tenant": tenant or None, "team": team or None}
    changed = _change(user, body, data, control_url)
    typer.echo(f"user {changed['email']} is {_standing(changed)}")


@app.command("password")
def password(
    user: User, password_stdin: FromInput = False, data: Data = DEFAULT_DATA, control_url: ControlUrl = ""
) -> None:
    """Set a new password and end the user's sessions. A generated password is shown once."""
    chosen, is_ours = _password(password_stdin)
    changed = _change(user, {"password": chosen}, data, control_url)
    typer.echo(f"user {changed['email']} has a new password; their sessions have ended")
    if is_ours:
        typer.echo(f"password, shown this once: {chosen}")


@app.command("close")
def close(user: User, data: Data = DEFAULT_DATA, control_url: ControlUrl = "") -> None:
    """Disable an account and end its sessions. `open` enables it again."""
    changed = _change(user, {"is_active": False}, data, control_url)
    typer.echo(f"user {changed['email']} is disabled, and so are the admin tokens that they created")


@app.command("open")
def reopen(user: User, data: Data = DEFAULT_DATA, control_url: ControlUrl = "") -> None:
    """Enable a disabled account."""
    changed = _change(user, {"is_active": True}, data, control_url)
    typer.echo(f"user {changed['email']} may sign in again")


@app.command("remove")
def remove(user: User, data: Data = DEFAULT_DATA, control_url: ControlUrl = "") -> None:
    """Delete an account and end its sessions."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        gone = client.delete(f"/v1/accounts/{path_segment(user)}")
    typer.echo(f"user {gone['id']} removed, and the admin tokens that they made are revoked")


def _change(user: str, body: Mapping[str, object], data: Any, control_url: str) -> dict[str, Any]:
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        return client.patch(f"/v1/accounts/{path_segment(user)}", body)


def _password(from_input: bool) -> tuple[str, bool]:
    """Return the password, and whether it was generated here."""
    if from_input:
        return sys.stdin.readline().rstrip("\n"), False
    return made_up_password(), True


def made_up_password() -> str:
    """Return a random password of 20 letters."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def _standing(user: Mapping[str, Any]) -> str:
    role = str(user["role"]).replace("_", " ")
    if user["team_id"]:
        return f"{role} of {user['tenant_id']}/{user['team_id']}"
    return f"{role} of {user['tenant_id']}" if user["tenant_id"] else role


def _cell(user: Mapping[str, Any], column: str) -> str:
    if column == "role":
        return _standing(user)
    if column == "signs in by":
        return "password" if user["has_password"] else "identity provider"
    if column == "status":
        return "active" if user["is_active"] else "kept out"
    return str(user[column])[:19] if column == "created_at" else str(user[column])
