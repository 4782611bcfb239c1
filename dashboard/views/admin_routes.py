"""Routes: names that applications ask for and that lead to models, with their weights, conditions and fallbacks."""

import json
from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from backends.http_client.control_plane import path_segment
from contracts.errors import InvalidRequest, TollkeeperError
from dashboard.forms import outcome, show_refusal
from dashboard.panels import panel
from dashboard.table import Table
from dashboard.views.admin_parts import ask_first, form, moment, pick, quoted, submit, when_column
from dashboard.visit import Visit

_text = st.column_config.TextColumn
_COLUMNS: Final[dict[str, Any]] = {
    "Route": _text(help="The name that applications ask for"),
    "Shares by weight": _text(help="Its entries, each with its share of the traffic"),
    "Fallbacks": _text(help="Fallbacks, in their order"),
    "Other rules": _text(help="Other rules"),
    "Active": st.column_config.CheckboxColumn(help="Inactive: applications cannot use it"),
    "Created": when_column(),
}
_EXAMPLE: Final = {
    "choose": [{"model": "small", "weight": 9}, {"model": "large", "weight": 1}],
    "fallbacks": [{"model": "other"}],
}


def draw_routes(visit: Visit) -> None:
    """Draw all routes, with forms to create, change, explain and delete one."""
    rows = visit.control.get_all("/v1/routes")
    frame = Table(
        [
            {
                "Route": row["id"],
                "Shares by weight": _shared(row["rules"]),
                "Fallbacks": ", ".join(_name(entry) for entry in row["rules"].get("fallbacks", ())),
                "Other rules": ", ".join(name for name in row["rules"] if name not in ("choose", "fallbacks")),
                "Active": row["is_active"],
                "Created": moment(visit, row["created_at"]),
            }
            for row in rows
        ]
    )
    chosen = pick(
        "Routes",
        rows,
        frame,
        key="admin_routes",
        columns=_COLUMNS,
        help="A route selects a model by weights and conditions, with fallbacks (docs/routes.md). Select a "
        "line to change it or to see where a request would go.",
        empty="No routes: applications ask for models directly.",
    )
    if visit.viewer.tenant is None:
        _new_route(visit)
    if chosen is not None:
        _route(visit, chosen)


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("label") or entry.get("model") or entry.get("route") or "")


def _shared(rules: Mapping[str, Any]) -> str:
    entries = rules.get("choose", ())
    total = sum(int(entry.get("weight", 1)) for entry in entries) or 1
    return ", ".join(f"{_name(entry)} {100 * int(entry.get('weight', 1)) / total:.3g} %" for entry in entries)


def _new_route(visit: Visit) -> None:
    with form("New route", "new_route", visit) as may:
        name = st.text_input("Name", max_chars=200, help="What applications ask for; no model may have it")
        rules = st.text_area("Rules, as JSON", json.dumps(_EXAMPLE, indent=2), height=220)
        if submit("Create route", may=may):
            try:
                body = {"id": name.strip(), "rules": _read(rules)}
            except InvalidRequest as error:
                show_refusal(error)
                return
            with outcome(f"Route {name} created"):
                visit.control.post("/v1/routes", body)


def _route(visit: Visit, route: Mapping[str, Any]) -> None:
    name, may = str(route["id"]), visit.viewer.can_write and visit.viewer.tenant is None
    path = f"/v1/routes/{path_segment(name)}"
    left, right = st.columns(2, gap="medium")
    with left, panel(f"Route {name}"):
        with st.form(f"change_route_{name}", border=False, enter_to_submit=False):
            rules = st.text_area("Rules, as JSON", json.dumps(route["rules"], indent=2), height=300, disabled=not may)
            if submit("Save", may=may):
                try:
                    body = {"rules": _read(rules)}
                except InvalidRequest as error:
                    show_refusal(error)
                    return
                with outcome(f"Route {name} changed"):
                    visit.control.patch(path, body)
        offer, delete = st.columns(2)
        word = "Deactivate" if route["is_active"] else "Activate"
        if offer.button(word, disabled=not may, key=f"route_offer_{name}", width="stretch"):
            with outcome(f"Route {name} changed"):
                visit.control.patch(path, {"is_active": not route["is_active"]})
        if delete.button(
            "Delete", icon=":material/delete:", disabled=not may, key=f"route_delete_{name}", width="stretch"
        ):
            ask_first(
                "Delete this route?",
                f"Applications that ask for {quoted(name)} are refused within a second.",
                "Delete",
                lambda: visit.control.delete(path),
                f"Route {name} deleted",
                typed=name,
            )
    with right:
        _explain(visit, path, name)


def _explain(visit: Visit, path: str, name: str) -> None:
    with panel(
        f"Where route {name} would send a request", help="A preview: no model is called and nothing is counted."
    ):
        with st.form(f"explain_{name}", border=False, enter_to_submit=False):
            left, right = st.columns(2)
            tenant = left.text_input("Tenant", max_chars=63)
            tokens = right.number_input("Prompt, tokens", 0, None, None, placeholder="not set")
            asked = st.form_submit_button("Explain")
        if not asked:
            return
        body: dict[str, object] = {"tenant": tenant.strip()} if tenant.strip() else {}
        body |= {} if tokens is None else {"prompt_tokens": int(tokens)}
        try:
            st.json(visit.control.post(f"{path}/explain", body), expanded=2)
        except TollkeeperError as error:
            show_refusal(error)


def _read(text: str) -> dict[str, Any]:
    try:
        rules = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"the rules are not valid JSON: {error}", param="rules") from error
    if not isinstance(rules, dict):
        raise InvalidRequest("the rules must be a JSON object with `choose`", param="rules")
    return rules
