"""Accounts with their roles, and API tokens of the control plane."""

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from backends.http_client.control_plane import path_segment
from contracts.control import Role
from dashboard.forms import outcome
from dashboard.panels import panel
from dashboard.states import escaped
from dashboard.table import Table
from dashboard.views.admin_parts import (
    ask_first,
    form,
    made_secret,
    moment,
    pick,
    quoted,
    show_secret,
    submit,
    utc_of,
    when_column,
)
from dashboard.visit import Visit

_text = st.column_config.TextColumn
_USERS: Final[dict[str, Any]] = {
    "E-mail": _text(help="E-mail address that the user signs in with"),
    "Name": _text(),
    "Role": _text(width="small", help="What the user may see and change (docs/dashboard.md)"),
    "Access": _text(width="small", help="Tenant or team that the user sees; all: the whole installation"),
    "Signs in by": _text(width="small", help="A password of this installation, or only the identity provider"),
    "Enabled": st.column_config.CheckboxColumn(help="A disabled account cannot sign in"),
    "Created": when_column(),
}
_TOKENS: Final[dict[str, Any]] = {
    "Token": _text(help="Its id"),
    "Name": _text(help="Name of the token or its owner; shown in the audit log"),
    "Ends with": _text(width="small", help="The last characters of its secret"),
    "Role": _text(width="small"),
    "Access": _text(width="small"),
    "Account": _text(help="Account that created it; the token ends with the account. Empty: the installation's owner"),
    "State": _text(
        help="A token is refused after its expiry, and while its account has no right to grant the token's role"
    ),
    "Created": when_column(),
    "Expires": when_column(),
}


def draw_users(visit: Visit) -> None:
    """Draw the accounts of people and the tokens of programs."""
    rows = visit.control.get_all("/v1/accounts")
    frame = Table(
        [
            {
                "E-mail": row["email"],
                "Name": row["name"],
                "Role": _spoken(row["role"]),
                "Access": _reach(row),
                "Signs in by": "password" if row["has_password"] else "identity provider",
                "Enabled": row["is_active"],
                "Created": moment(visit, row["created_at"]),
            }
            for row in rows
        ],
        columns=list(_USERS),
    )
    chosen = pick(
        "Users",
        rows,
        frame,
        key="admin_users",
        columns=_USERS,
        help="People who sign in to this dashboard. Select a row to change or remove one.",
        empty="No accounts: anyone on this machine sees everything, and nobody else can sign in.",
    )
    _new_user(visit)
    if chosen is not None:
        _user(visit, chosen)
    _tokens(visit, {str(row["id"]): str(row["email"]) for row in rows})


def _spoken(role: str) -> str:
    return role.replace("_", " ")


def _reach(row: Mapping[str, Any]) -> str:
    return "/".join(filter(None, (row["tenant_id"], row["team_id"]))) or "all"


def _role_fields(key: str, row: Mapping[str, Any] | None = None) -> dict[str, object]:
    """Draw the fields for role, tenant and team, and return them as fields of the control plane's request."""
    left, middle, right = st.columns(3)
    roles = [role.value for role in Role if role is not Role.DIRECTORY]  # for tokens only
    role = left.selectbox(
        "Role",
        roles,
        index=roles.index(row["role"]) if row else roles.index(Role.TEAM_LEAD.value),
        format_func=_spoken,
        key=f"{key}_role",
        help="owner and admin: change everything; finance: read costs; team_lead: one team; developer: own keys",
    )
    tenant = middle.text_input(
        "Tenant", row["tenant_id"] if row else "", max_chars=63, key=f"{key}_tenant", placeholder="all"
    )
    team = right.text_input(
        "Team", row["team_id"] if row else "", max_chars=63, key=f"{key}_team", placeholder="for team leads, developers"
    )
    return {"role": role, "tenant": tenant.strip() or None, "team": team.strip() or None}


def _new_user(visit: Visit) -> None:
    with form("New user", "new_user", visit) as may:
        left, middle, right = st.columns(3)
        email = left.text_input("E-mail", max_chars=320)
        name = middle.text_input("Name", max_chars=200)
        password = right.text_input(
            "Password",
            type="password",
            help="Empty: signs in only with the identity provider",
            autocomplete="new-password",
        )
        role = _role_fields("new_user")
        if submit("Create user", may=may):
            body: dict[str, object] = {"email": email, "name": name, **role}
            body |= {"password": password} if password else {}
            with outcome(f"{email} may sign in"):
                visit.control.post("/v1/accounts", body)


def _user(visit: Visit, user: Mapping[str, Any]) -> None:
    email, may = str(user["email"]), visit.viewer.can_write
    path = f"/v1/accounts/{path_segment(str(user['id']))}"
    with panel(str(user["name"]), unit=email):
        with st.form(f"role_{user['id']}", border=False, enter_to_submit=False):
            role = _role_fields(str(user["id"]), user)
            if submit("Change role", may=may):
                with outcome(f"{email} is {_spoken(str(role['role']))}"):
                    visit.control.patch(path, role)
        with st.form(f"password_{user['id']}", border=False, enter_to_submit=False):
            password = st.text_input("New password", type="password", autocomplete="new-password")
            if submit("Set it and end all sessions", may=may):
                with outcome(f"{email} has a new password"):
                    visit.control.patch(path, {"password": password})
        with st.container(horizontal=True):
            if user["is_active"]:
                if st.button("Disable", icon=":material/block:", disabled=not may, key=f"user_out_{user['id']}"):
                    ask_first(
                        "Disable this account?",
                        f"All sessions of {quoted(email)} end, and new ones are refused until you "
                        "enable the account again; so are API tokens that it created.",
                        "Disable",
                        lambda: visit.control.patch(path, {"is_active": False}),
                        f"{email} is disabled",
                    )
            elif st.button("Enable", disabled=not may, key=f"user_in_{user['id']}"):
                with outcome(f"{email} is enabled"):
                    visit.control.patch(path, {"is_active": True})
            if st.button("Remove", icon=":material/delete:", disabled=not may, key=f"user_remove_{user['id']}"):
                ask_first(
                    "Remove this account?",
                    f"{quoted(email)} can no longer sign in; its entries in the audit log stay. API tokens "
                    "that it created end with it.",
                    "Remove",
                    lambda: visit.control.delete(path),
                    f"{email} removed",
                )


def _tokens(visit: Visit, emails: Mapping[str, str]) -> None:
    rows = visit.control.get_all("/v1/tokens")
    frame = Table(
        [
            {
                "Token": row["id"],
                "Name": row["name"],
                "Ends with": row["hint"],
                "Role": _spoken(row["role"]),
                "Access": _reach(row),
                "Account": emails.get(row["account_id"], row["account_id"] or None),
                "State": f"✗ {row['refused']}" if row["refused"] else "✓ works",
                "Created": moment(visit, row["created_at"]),
                "Expires": moment(visit, row["expires_at"]),
            }
            for row in rows
        ],
        columns=list(_TOKENS),
    )
    chosen = pick(
        "API tokens",
        rows,
        frame,
        key="admin_tokens",
        columns=_TOKENS,
        help="Tokens for programs and the command line that call the control plane and the analytics process.",
        empty="Only the owner's token exists, in the data directory.",
    )
    with form("New token", "new_token", visit) as may:
        left, right = st.columns(2)
        name = left.text_input("Name", max_chars=120, help="Name of the token or its owner; shown in the audit log")
        ends = right.datetime_input("Expires", None, help=f"{visit.viewer.zone.key}; empty: never")
        role = _role_fields("new_token")
        if submit("Create token", may=may):
            body: dict[str, object] = {"name": name, "expires_at": utc_of(visit, ends), **role}
            secret = made_secret(lambda: visit.control.post("/v1/tokens", body))
            if secret is not None:
                show_secret("The new token", secret, f"{quoted(name)}, {_spoken(str(role['role']))}.")
    if chosen is not None and chosen["revoked_at"] is None:
        path = f"/v1/tokens/{path_segment(str(chosen['id']))}"
        if st.button(
            f"Revoke {escaped(chosen['name'])}",
            icon=":material/block:",
            disabled=not visit.viewer.can_write,
            key=f"token_revoke_{chosen['id']}",
        ):
            ask_first(
                "Revoke this token?",
                f"{quoted(chosen['name'])} is refused at once, and cannot be restored.",
                "Revoke",
                lambda: visit.control.delete(path),
                f"Token {chosen['name']} revoked",
            )
