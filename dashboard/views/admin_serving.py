"""Models, and the pools of targets that serve them."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import streamlit as st

from backends.http_client.control_plane import path_segment
from contracts.errors import InvalidRequest
from contracts.serving.pool_choices import POLICY_NAMES, TARGET_KINDS
from dashboard.forms import outcome, show_refusal
from dashboard.panels import panel, show_table
from dashboard.states import escaped
from dashboard.table import Table
from dashboard.views.admin_parts import ask_first, form, moment, pick, quoted, submit, when_column
from dashboard.visit import Visit

_text = st.column_config.TextColumn
_MODELS: Final[dict[str, Any]] = {
    "Model": _text(help="The name that applications ask for"),
    "Pool": _text(help="Pool whose targets serve it"),
    "Description": _text(),
    "Context": st.column_config.NumberColumn(
        format="localized", help="Context length in tokens: prompt and answer together"
    ),
    "Active": st.column_config.CheckboxColumn(help="Inactive: applications cannot use it"),
    "Created": when_column(),
}
_POOLS: Final[dict[str, Any]] = {
    "Pool": _text(),
    "Policy": _text(help="How its targets are ranked for a request (docs/replicas.md)"),
    "Region": _text(help="Region of its targets; empty: none"),
    "Targets": _text(help="Its replicas"),
    "Created": when_column(),
}
_TARGETS: Final[dict[str, Any]] = {
    "Target": _text(),
    "Kind": _text(width="small"),
    "Address": _text(help="URL of the target"),
    "Model at target": _text(help="The model's name at this target; empty: the name that applications use"),
    "Provider": _text(width="small", help="Provider, for prices and playbooks"),
    "Credential": _text(help="Reference to the key; the key is never shown"),
    "Weight": st.column_config.NumberColumn(width="small"),
}


def draw_serving(visit: Visit) -> None:
    """Draw models, pools, and the chosen pool's targets."""
    _models(visit)
    rows = visit.control.get_all("/v1/pools")
    targets = {row["id"]: visit.control.get(f"/v1/pools/{path_segment(row['id'])}/targets")["data"] for row in rows}
    frame = Table(
        [
            {
                "Pool": row["id"],
                "Policy": row["policy"],
                "Region": row["region"],
                "Targets": ", ".join(target["id"] for target in targets[row["id"]]) or "none",
                "Created": moment(visit, row["created_at"]),
            }
            for row in rows
        ]
    )
    chosen = pick(
        "Pools",
        rows,
        frame,
        key="admin_pools",
        columns=_POOLS,
        help="Groups of interchangeable targets. Select a row to see its targets.",
        empty="No pools.",
    )
    with form("New pool", "new_pool", visit) as may:
        left, middle, right = st.columns(3)
        name = left.text_input("Id", max_chars=63)
        policy = middle.selectbox("Policy", POLICY_NAMES)
        region = right.text_input("Region", max_chars=63)
        if submit("Create pool", may=may):
            with outcome(f"Pool {name} created"):
                visit.control.post("/v1/pools", {"id": name, "policy": policy, "region": region})
    if chosen is not None:
        _pool(visit, str(chosen["id"]), targets[chosen["id"]])


def _models(visit: Visit) -> None:
    rows = visit.control.get_all("/v1/models")
    frame = Table(
        [
            {
                "Model": row["id"],
                "Pool": row["pool_id"],
                "Description": row["description"],
                "Context": row["context_tokens"],
                "Active": row["is_active"],
                "Created": moment(visit, row["created_at"]),
            }
            for row in rows
        ]
    )
    chosen = pick(
        "Models",
        rows,
        frame,
        key="admin_models",
        columns=_MODELS,
        help="Names that applications ask for. Select a row to deactivate or delete a model.",
        empty="No models.",
    )
    with form("New model", "new_model", visit) as may:
        left, middle, right = st.columns(3)
        name = left.text_input("Name", max_chars=200)
        pool = middle.selectbox("Pool", [row["id"] for row in visit.control.get_all("/v1/pools")])
        context = right.number_input("Context, tokens", 1, None, None, placeholder="not set")
        description = st.text_input("Description", max_chars=500)
        if submit("Create model", may=may):
            body: dict[str, object] = {"id": name, "pool": pool, "description": description}
            body |= {} if context is None else {"context_tokens": int(context)}
            with outcome(f"Model {name} created"):
                visit.control.post("/v1/models", body)
    if chosen is not None:
        _model(visit, chosen)


def _model(visit: Visit, model: Mapping[str, Any]) -> None:
    name, may = str(model["id"]), visit.viewer.can_write
    path = f"/v1/models/{path_segment(name)}"
    with panel(f"Model {name}"), st.container(horizontal=True):
        word = "Deactivate" if model["is_active"] else "Activate"
        if st.button(word, disabled=not may, key=f"model_offer_{name}"):
            with outcome(f"Model {name} changed"):
                visit.control.patch(path, {"is_active": not model["is_active"]})
        if st.button("Delete", icon=":material/delete:", disabled=not may, key=f"model_delete_{name}"):
            ask_first(
                "Delete this model?",
                f"Applications that ask for {quoted(name)} are refused within a second. Its records and prices stay.",
                "Delete",
                lambda: visit.control.delete(path),
                f"Model {name} deleted",
                typed=name,
            )


def _pool(visit: Visit, pool: str, targets: list[dict[str, Any]]) -> None:
    path, may = f"/v1/pools/{path_segment(pool)}", visit.viewer.can_write
    frame = Table(
        [
            {
                "Target": target["id"],
                "Kind": target["kind"],
                "Address": target["url"],
                "Model at target": target["model"],
                "Provider": target["provider"],
                "Credential": target["key_ref"],
                "Weight": target["weight"],
            }
            for target in targets
        ]
    )
    show_table(f"Targets of {pool}", frame, key=f"admin_targets_{pool}", columns=_TARGETS, empty="No targets.")
    _new_target(visit, pool, path)
    with panel(f"Pool {pool}"), st.container(horizontal=True):
        for target in targets:
            if st.button(
                f"Remove {escaped(target['id'])}",
                icon=":material/delete:",
                disabled=not may,
                key=f"target_remove_{pool}/{target['id']}",
            ):
                ask_first(
                    "Remove this target?",
                    f"{quoted(target['id'])} gets no more requests; streams in progress finish.",
                    "Remove",
                    partial(visit.control.delete, f"{path}/targets/{path_segment(target['id'])}"),
                    f"Target {target['id']} removed",
                )
        if st.button(
            f"Delete pool {escaped(pool)}", icon=":material/delete:", disabled=not may, key=f"pool_delete_{pool}"
        ):
            ask_first(
                "Delete this pool?",
                f"{quoted(pool)} is deleted with its targets. Refused while the pool serves a model.",
                "Delete",
                lambda: visit.control.delete(path),
                f"Pool {pool} deleted",
                typed=pool,
            )


def _new_target(visit: Visit, pool: str, path: str) -> None:
    with form("New target", f"new_target_{pool}", visit) as may:
        left, middle, right = st.columns(3)
        name = left.text_input("Id", max_chars=63)
        kind = middle.selectbox("Kind", TARGET_KINDS)
        weight = right.number_input("Weight", 1, 1000, 1)
        url = left.text_input("Address", max_chars=500, placeholder="http://127.0.0.1:8000/v1")
        model = middle.text_input("Model at target", max_chars=200)
        provider = right.text_input("Provider", max_chars=63)
        key_ref = left.text_input("Credential", max_chars=200, placeholder="env:NAME or file:/PATH")
        settings = st.text_area("Settings, as JSON", "{}", height=90, help="See docs/targets.md")
        if submit("Add target", may=may):
            try:
                body = {
                    "id": name, "kind": kind, "weight": weight, "url": url, "model": model, "provider": provider,
                    "key_ref": key_ref, "settings": _settings(settings),
                }  # fmt: skip
            except InvalidRequest as error:
                show_refusal(error)
                return
            with outcome(f"Target {name} added to {pool}"):
                visit.control.post(f"{path}/targets", body)


def _settings(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise InvalidRequest(f"the settings are not valid JSON: {error}", param="settings") from error
    if not isinstance(found, dict):
        raise InvalidRequest("the settings must be a JSON object", param="settings")
    return found
