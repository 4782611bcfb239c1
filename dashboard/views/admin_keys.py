"""API keys: create, restrict to scopes, rotate and revoke them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, get_args

import streamlit as st

from contracts.rules.limits import PriorityClass
from dashboard.forms import outcome
from dashboard.panels import panel
from dashboard.table import Table
from dashboard.views.admin_parts import (
    ask_first,
    chosen_tenant,
    form,
    made_secret,
    moment,
    pick,
    quoted,
    show_secret,
    submit,
    tenant_path,
    utc_of,
    when_column,
)
from dashboard.visit import Visit

_text = st.column_config.TextColumn
_COLUMNS: Final[dict[str, Any]] = {
    "Key": _text(help="Its id, shown on records and costs"),
    "Name": _text(),
    "Ends with": _text(width="small", help="The last characters of its secret"),
    "State": _text(width="small"),
    "Team": _text(width="small"),
    "Project": _text(width="small"),
    "Used by": _text(width="small", help="Service account: used by a program, not a person"),
    "May use": _text(help="Scopes of the key; they restrict what its tenant allows"),
    "Created": when_column(),
    "Expires": when_column("Expiry; the key is refused afterwards"),
}
_OVERLAPS: Final[Mapping[str, int]] = {"at once": 0, "in an hour": 3600, "in a day": 86_400, "in a week": 604_800}


def draw_keys(visit: Visit) -> None:
    """Draw a tenant's keys, with forms to create, change, rotate and revoke one."""
    tenant = chosen_tenant(visit)
    if tenant is None:
        return
    rows = visit.control.get_all(tenant_path(tenant, "keys"))
    rows.sort(key=lambda row: (row["revoked_at"] is not None, row["name"]))
    frame = Table(
        [
            {
                "Key": row["id"],
                "Name": row["name"],
                "Ends with": row["hint"],
                "State": _state(visit, row),
                "Team": row["team_id"],
                "Project": row["project_id"],
                "Used by": "program" if row["is_service_account"] else "person",
                "May use": _scopes(row["scopes"]),
                "Created": moment(visit, row["created_at"]),
                "Expires": moment(visit, row["expires_at"]),
            }
            for row in rows
        ]
    )
    chosen = pick(
        f"Keys of {tenant}",
        rows,
        frame,
        key=f"admin_keys_{tenant}",
        columns=_COLUMNS,
        help="Keys that applications authenticate with. Select a row to change, renew or revoke it.",
        empty="This tenant has no key.",
    )
    _new_key(visit, tenant)
    if chosen is not None:
        _key(visit, tenant, chosen)


def _state(visit: Visit, row: Mapping[str, Any]) -> str:
    if row["revoked_at"] is not None:
        return "revoked"
    ends = row["expires_at"]
    return "expired" if ends is not None and datetime.fromisoformat(ends) <= visit.now else "active"


def _scopes(scopes: Mapping[str, Any]) -> str:
    shown = (
        f"{name}: {', '.join(map(str, held)) if isinstance(held, list) else held}" for name, held in scopes.items()
    )
    return "; ".join(shown) or "all that its tenant may use"


def _new_key(visit: Visit, tenant: str) -> None:
    teams = [team["id"] for team in visit.control.get_all(tenant_path(tenant, "teams"))]
    own = visit.viewer.team
    with form("New key", f"new_key_{tenant}", visit) as may:
        left, middle, right = st.columns(3)
        name = left.text_input("Name", max_chars=200)
        team = middle.selectbox(
            "Team", [own] if own else ["", *teams], format_func=lambda team: team or "none: belongs to the whole tenant"
        )
        project = right.text_input("Project", max_chars=63, help="Its id; needs a team")
        models = left.text_input("Models", placeholder="all", help="Allowed models, separated by commas; empty: all")
        priority = middle.selectbox(
            "Class", ["", *get_args(PriorityClass)], format_func=lambda name: name or "standard"
        )
        ends = right.datetime_input("Expires", None, help=f"{visit.viewer.zone.key}; empty: never")
        is_service = left.checkbox("Service account")
        if submit("Create key", may=may):
            body: dict[str, object] = {
                "name": name,
                "is_service_account": is_service,
                "expires_at": utc_of(visit, ends),
            }
            body |= {"team": team} if team else {}
            body |= {"project": project.strip()} if project.strip() else {}
            body |= {"models": _listed(models)} if _listed(models) else {}
            body |= {"priority": priority} if priority else {}
            secret = made_secret(lambda: visit.control.post(tenant_path(tenant, "keys"), body))
            if secret is not None:
                show_secret("The new key", secret, f"{quoted(name)} of {quoted(tenant)}. It works within a second.")


def _key(visit: Visit, tenant: str, key: Mapping[str, Any]) -> None:
    path, may = tenant_path(tenant, "keys", str(key["id"])), visit.viewer.can_write and key["revoked_at"] is None
    with panel(f"Key {key['name']}", unit=str(key["id"])):
        left, right = st.columns(2, gap="medium")
        with left, st.form(f"change_key_{key['id']}", border=False, enter_to_submit=False):
            name = st.text_input("Name", key["name"], max_chars=200)
            models = st.text_input("Models", ", ".join(key["scopes"].get("models") or []), placeholder="all")
            ends = st.datetime_input("Expires", moment(visit, key["expires_at"]), help=visit.viewer.zone.key)
            if submit("Save", may=may):
                body = {"name": name, "models": _listed(models) or None, "expires_at": utc_of(visit, ends)}
                with outcome(f"Key {name} changed"):
                    visit.control.patch(path, body)
        with right:
            overlap = st.selectbox(
                "Current secret expires",
                list(_OVERLAPS),
                key=f"key_overlap_{key['id']}",
                help="When a new secret is created",
                disabled=not may,
            )
            if st.button(
                "Create a new secret", icon=":material/autorenew:", disabled=not may, key=f"key_rotate_{key['id']}"
            ):
                secret = made_secret(
                    lambda: visit.control.post(f"{path}/rotate", {"overlap_seconds": _OVERLAPS[overlap]})
                )
                if secret is not None:
                    show_secret(
                        "The new secret", secret, f"For key {quoted(key['name'])}; its old secret expires {overlap}."
                    )
            if st.button("Revoke", icon=":material/block:", disabled=not may, key=f"key_revoke_{key['id']}"):
                ask_first(
                    "Revoke this key?",
                    f"{quoted(key['name'])} is refused on every gateway within a second, and cannot be restored.",
                    "Revoke",
                    lambda: visit.control.delete(path),
                    f"Key {key['name']} revoked",
                )


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
