"""Alert rules: their conditions and the channels that they notify."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import streamlit as st

from backends.http_client.control_plane import path_segment
from contracts.rules.alerts import PLATFORM_KINDS, RULE_KINDS, RuleKind, settings_of
from dashboard import address
from dashboard.forms import outcome
from dashboard.panels import note, panel, show_table
from dashboard.table import Table
from dashboard.views.alert_words import KIND_WORDS
from dashboard.views.budget_forms import percents, tenant_choice
from dashboard.visit import Visit

_TABLE: Final = "rules_table"
_PATH: Final = "/v1/alert-rules"


def draw_rules(visit: Visit) -> None:
    """Draw all rules that the viewer may see, the selected one as a form, and the form to create one."""
    rules = visit.control.get_all(_PATH)
    channels = [str(row["id"]) for row in visit.control.get_all("/v1/alert-channels")]
    show_table(
        "Rules",
        Table([_row(rule) for rule in rules]),
        key=_TABLE,
        columns={"Rule": st.column_config.TextColumn(help="Its id"), "Settings": st.column_config.TextColumn()},
        help="Evaluated every 15 seconds. Rules without a tenant cover all tenants, each evaluated separately.",
        on_select=partial(_open_row, [str(rule["id"]) for rule in rules]),
        empty="No rules: no alerts are raised.",
    )
    chosen = address.get("rule")
    rule = next((rule for rule in rules if rule["id"] == chosen), None)
    if rule is not None and visit.viewer.can_write:
        _change(visit, rule, channels)
    if visit.viewer.can_write:
        _create(visit, channels)


def _row(rule: Mapping[str, Any]) -> dict[str, object]:
    return {
        "Rule": rule["id"],
        "Kind": KIND_WORDS.get(rule["kind"], rule["kind"]),
        "Owner": rule["tenant_id"] or "whole installation",
        "Notifies": ", ".join(rule["channels"]) or "nobody",
        "Settings": ", ".join(f"{name} {_shown(value)}" for name, value in rule["settings"].items()) or "defaults",
        "Active": rule["is_active"],
    }


def _shown(value: object) -> str:
    if isinstance(value, list):
        return "/".join(str(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _create(visit: Visit, channels: Sequence[str]) -> None:
    with st.expander("New rule", icon=":material/add:", expanded=address.get("new") == "rule"):
        kind = st.selectbox(
            "Kind",
            [kind for kind in RULE_KINDS if visit.viewer.tenant is None or kind not in PLATFORM_KINDS],
            key="new_rule_kind",
            format_func=lambda kind: KIND_WORDS[kind],
        )
        with st.form("new_rule", border=False, enter_to_submit=False):
            first, second, third = st.columns(3)
            name = first.text_input("Id", key="new_rule_id", help="1 to 63 of a-z, 0-9 and -; it never changes")
            with second:
                tenant = (
                    "" if kind in PLATFORM_KINDS else tenant_choice(visit, "new_rule_tenant", without="all tenants")
                )
            told = third.multiselect(
                "Notifies",
                channels,
                key="new_rule_channels",
                help="Channels to notify; none: alerts are only shown here",
            )
            settings = _settings(kind, {}, "new_rule")
            if st.form_submit_button("Create rule", type="primary"):
                body = {"id": name.strip(), "kind": kind, "tenant": tenant, "settings": settings, "channels": told}
                with outcome("Rule created"):
                    visit.control.post(_PATH, body)


def _change(visit: Visit, rule: Mapping[str, Any], channels: Sequence[str]) -> None:
    kind, path = cast(RuleKind, rule["kind"]), f"{_PATH}/{path_segment(rule['id'])}"
    key = f"rule_{rule['id']}"
    with panel(f"Rule {rule['id']}", unit=KIND_WORDS.get(kind, kind)):
        with st.form(key, border=False):
            is_active = st.toggle("Active", value=rule["is_active"], key=f"{key}_active")
            known = [*channels, *(name for name in rule["channels"] if name not in channels)]
            told = st.multiselect("Notifies", known, default=rule["channels"], key=f"{key}_channels")
            settings = _settings(kind, rule["settings"], key)
            if st.form_submit_button("Save", type="primary"):
                with outcome("Rule changed"):
                    visit.control.patch(path, {"is_active": is_active, "channels": told, "settings": settings})
        with st.container(horizontal=True):
            with st.popover("Delete", icon=":material/delete:"):
                st.markdown("Its open alerts end without a notification.")
                if st.button("Delete this rule", type="primary", key=f"{key}_delete"):
                    with outcome("Rule deleted"):
                        visit.control.delete(path)
                        address.change({"rule": None})
            st.button("Close", on_click=address.change, args=({"rule": None},), key="rule_close")


def _settings(kind: RuleKind, stated: Mapping[str, Any], key: str) -> dict[str, object]:
    """Draw the settings of a kind of rule, and return those that differ from their defaults."""
    found: dict[str, object] = {}
    numbers = settings_of(kind)
    for column, (name, setting) in zip(st.columns(max(len(numbers), 1)), numbers.items(), strict=False):
        value = column.number_input(
            _worded(name),
            value=float(stated.get(name, setting.default)),
            key=f"{key}_{kind}_{name}",
            format="%g",
            help=f"{setting.meaning[:1].upper()}{setting.meaning[1:]}; {setting.least:g} to {setting.most:g}, "
            f"{setting.default:g} by default",
        )
        if value is not None and value != setting.default:
            found[name] = float(value)
    if kind == "budget_threshold":
        written = st.text_input(
            "Thresholds",
            value=", ".join(str(each) for each in stated.get("thresholds", [])),
            key=f"{key}_thresholds",
            placeholder="each budget's own, else 80, 100",
            help="Percent of a budget, in rising order; empty: each budget's own thresholds, else 80 and 100",
        )
        if written.strip():
            found["thresholds"] = percents(written)
    if kind == "slo_burn":
        slo = st.text_input(
            "Objective", value=str(stated.get("slo", "")), key=f"{key}_slo", help="Its id; empty: all of them"
        )
        if slo.strip():
            found["slo"] = slo.strip()
    if not numbers and kind != "budget_threshold" and kind != "slo_burn":
        note("This kind of rule has no settings.")
    return found


def _worded(name: str) -> str:
    words = name.replace("_", " ").replace("kv", "KV").replace("usd", "USD")
    return words[:1].upper() + words[1:]


def _open_row(ids: Sequence[str]) -> None:
    rows = st.session_state[_TABLE].selection.rows
    address.change({"rule": ids[rows[0]] if rows and rows[0] < len(ids) else None})
