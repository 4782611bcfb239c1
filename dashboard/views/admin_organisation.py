"""Tenants, their teams and projects."""

from collections.abc import Mapping
from typing import Any, Final
from zoneinfo import available_timezones

import streamlit as st

from contracts.control import Role
from dashboard.forms import outcome
from dashboard.panels import note, panel
from dashboard.table import Table
from dashboard.views.admin_parts import ask_first, form, moment, pick, quoted, submit, tenant_path, when_column
from dashboard.visit import Visit

_text, _number, _check = (
    st.column_config.TextColumn,
    st.column_config.NumberColumn,
    st.column_config.CheckboxColumn,
)
_TENANTS: Final[dict[str, Any]] = {
    "Tenant": _text(help="Its id, which never changes"),
    "Name": _text(help="Display name"),
    "Time zone": _text(help="Time zone of its days and months: budgets and invoices end at midnight there"),
    "Weight": _number(help="Share of capacity under contention, relative to other tenants"),
    "Active": _check(help="Inactive: all its keys are refused"),
    "Stores content": _check(help="Whether its prompts and answers are stored, with personal data redacted"),
    "Created": when_column(),
}
_TEAMS: Final[dict[str, Any]] = {"Team": _text(), "Name": _text(), "Projects": _text(), "Created": when_column()}
_SLUG: Final = "1 to 63 of a-z, 0-9 and -; it never changes"


def draw_organisation(visit: Visit) -> None:
    """Draw the list of tenants, and the chosen tenant's settings, teams and projects."""
    rows = visit.control.get_all("/v1/tenants")
    frame = Table(
        [
            {
                "Tenant": row["id"],
                "Name": row["name"],
                "Time zone": row["time_zone"],
                "Weight": row["weight"],
                "Active": row["is_active"],
                "Stores content": row["keeps_content"],
                "Created": moment(visit, row["created_at"]),
            }
            for row in rows
        ]
    )
    chosen = pick(
        "Tenants",
        rows,
        frame,
        key="admin_tenants",
        columns=_TENANTS,
        help="Organisations: the top level for billing and isolation. Select a row to change it and see its teams.",
        empty="No tenants yet.",
    )
    if visit.viewer.tenant is None:
        _new_tenant(visit)
    tenant = chosen or (rows[0] if len(rows) == 1 else None)
    if tenant is None:
        note("Choose a tenant above to change it, and to see its teams and projects.")
        return
    left, right = st.columns([2, 3], gap="medium")
    with left:
        _change_tenant(visit, tenant)
    with right:
        _teams(visit, str(tenant["id"]))


def _new_tenant(visit: Visit) -> None:
    with form("New tenant", "new_tenant", visit) as may:
        left, right = st.columns(2)
        slug = left.text_input("Id", max_chars=63, help=_SLUG)
        name = right.text_input("Name", max_chars=200)
        zone = left.selectbox("Time zone", _zones(), index=_zones().index("UTC"))
        weight = right.number_input("Weight", 1, 1000, 1)
        if submit("Create tenant", may=may):
            with outcome(f"Tenant {slug} created"):
                visit.control.post("/v1/tenants", {"id": slug, "name": name, "time_zone": zone, "weight": weight})


def _change_tenant(visit: Visit, tenant: Mapping[str, Any]) -> None:
    name = str(tenant["id"])
    with panel(f"Tenant {name}"):
        with st.form(f"change_tenant_{name}", border=False, enter_to_submit=False):
            title = st.text_input("Name", tenant["name"], max_chars=200)
            zones = _zones()
            zone = st.selectbox("Time zone", zones, index=zones.index(tenant["time_zone"]))
            weight = st.number_input("Weight", 1, 1000, tenant["weight"])
            keeps = st.checkbox("Store its prompts and answers, with personal data redacted", tenant["keeps_content"])
            if submit("Save", may=_may_change(visit)):
                body = {"name": title, "time_zone": zone, "weight": weight, "keeps_content": keeps}
                with outcome(f"Tenant {name} changed"):
                    visit.control.patch(tenant_path(name), body)
        if tenant["is_active"]:
            if st.button(
                "Deactivate", icon=":material/block:", disabled=not _may_change(visit), key=f"deactivate_{name}"
            ):
                ask_first(
                    "Deactivate this tenant?",
                    f"All keys of {quoted(name)} are refused within a second. Its records, budgets and prices stay.",
                    "Deactivate",
                    lambda: visit.control.delete(tenant_path(name)),
                    f"Tenant {name} deactivated",
                    typed=name,
                )
        elif st.button("Activate again", disabled=not _may_change(visit), key=f"activate_{name}"):
            with outcome(f"Tenant {name} active"):
                visit.control.patch(tenant_path(name), {"is_active": True})


def _teams(visit: Visit, tenant: str) -> None:
    teams = visit.control.get_all(tenant_path(tenant, "teams"))
    projects = {
        team["id"]: visit.control.get_all(tenant_path(tenant, "teams", team["id"], "projects")) for team in teams
    }
    frame = Table(
        [
            {
                "Team": team["id"],
                "Name": team["name"],
                "Projects": ", ".join(project["id"] for project in projects[team["id"]]) or "none",
                "Created": moment(visit, team["created_at"]),
            }
            for team in teams
        ]
    )
    chosen = pick(
        f"Teams of {tenant}",
        teams,
        frame,
        key=f"admin_teams_{tenant}",
        columns=_TEAMS,
        help="Select a row to rename or delete it, or to see its projects.",
        empty="No teams in this tenant.",
    )
    with form("New team", f"new_team_{tenant}", visit) as may_write:
        may = may_write and _may_change(visit)
        left, right = st.columns(2)
        slug = left.text_input("Id", max_chars=63, help=_SLUG)
        name = right.text_input("Name", max_chars=200)
        if submit("Create team", may=may):
            with outcome(f"Team {slug} created"):
                visit.control.post(tenant_path(tenant, "teams"), {"id": slug, "name": name})
    if chosen is not None:
        _team(visit, tenant, chosen, projects[chosen["id"]])


def _team(visit: Visit, tenant: str, team: Mapping[str, Any], projects: list[dict[str, Any]]) -> None:
    name, may = str(team["id"]), _may_change(visit)
    path = tenant_path(tenant, "teams", name)
    with panel(f"Team {name}"):
        with st.form(f"change_team_{name}", border=False, enter_to_submit=False):
            title = st.text_input("Name", team["name"], max_chars=200)
            if submit("Rename", may=may):
                with outcome(f"Team {name} renamed"):
                    visit.control.patch(path, {"name": title})
        with form("New project", f"new_project_{path}", visit) as may_write:
            may_make = may_write and may
            left, right = st.columns(2)
            slug = left.text_input("Id", max_chars=63, help=_SLUG)
            wanted = right.text_input("Name", max_chars=200)
            if submit("Create project", may=may_make):
                with outcome(f"Project {slug} created"):
                    visit.control.post(f"{path}/projects", {"id": slug, "name": wanted})
        for project in projects:
            _deletes(
                visit, "project", project["id"], tenant_path(tenant, "teams", name, "projects", project["id"])
            )  # fmt: skip
        _deletes(visit, "team", name, path, "with its projects")


def _deletes(visit: Visit, noun: str, name: str, path: str, what: str = "") -> None:
    if st.button(
        f"Delete {noun} {name}", icon=":material/delete:", disabled=not _may_change(visit), key=f"delete_{path}"
    ):
        ask_first(
            f"Delete this {noun}?",
            f"{quoted(name)} is removed {what}. Refused while its keys are in use; its records stay.",
            "Delete",
            lambda: visit.control.delete(path),
            f"{noun.capitalize()} {name} deleted",
        )


def _may_change(visit: Visit) -> bool:
    """Return whether the role may change tenants and teams; team leads may not."""
    return visit.viewer.can_write and visit.viewer.role is not Role.TEAM_LEAD


def _zones() -> list[str]:
    return sorted(available_timezones())
