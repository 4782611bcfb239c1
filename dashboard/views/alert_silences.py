"""Silences: suppress notifications of alerts for a time."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import streamlit as st

from backends.http_client.control_plane import path_segment
from dashboard import address
from dashboard.forms import outcome
from dashboard.panels import show_table
from dashboard.table import Table
from dashboard.views.budget_forms import tenant_choice
from dashboard.visit import Visit

_TABLE: Final = "silences_table"
_PATH: Final = "/v1/alert-silences"


def draw_silences(visit: Visit) -> None:
    """Draw all silences that the viewer may see, and the form to create one."""
    silences = visit.control.get_all(_PATH)
    formats = visit.formats
    show_table(
        "Silences",
        Table(
            [
                {
                    "State": _state(row["starts_at"], row["ends_at"], visit.now),
                    "Owner": row["tenant_id"] or "whole installation",
                    "Rule": row["rule_id"] or "all rules",
                    "Subject": row["subject"] or "everything",
                    "From": formats.moment(datetime.fromisoformat(row["starts_at"])),
                    "Until": formats.moment(datetime.fromisoformat(row["ends_at"])),
                    "Reason": row["comment"] or None,
                }
                for row in silences
            ]
        ),
        key=_TABLE,
        columns={"Subject": st.column_config.TextColumn(help="Alerts whose fingerprint starts with this")},
        help="Silenced alerts are raised and shown, but not sent. Alerts that are still open when a silence "
        "expires are sent then. Select a row to end it.",
        on_select=partial(_open_row, [str(row["id"]) for row in silences]),
        empty="No silences.",
    )
    chosen = address.get("silence")
    if visit.viewer.can_write and any(row["id"] == chosen for row in silences):
        with st.container(horizontal=True):
            if st.button("End this silence", type="primary", key="silence_end"):
                with outcome("Silence ended"):
                    visit.control.delete(f"{_PATH}/{path_segment(str(chosen))}")
                    address.change({"silence": None})
            st.button("Close", on_click=address.change, args=({"silence": None},), key="silence_close")
    if visit.viewer.can_write:
        _create(visit)


def _create(visit: Visit) -> None:
    with (
        st.expander("New silence", icon=":material/add:", expanded=address.get("new") == "silence"),
        st.form("new_silence", border=False, enter_to_submit=False),
    ):
        first, second, third = st.columns(3)
        with first:
            tenant = tenant_choice(visit, "new_silence_tenant", without="all tenants")
        rule = second.text_input("Rule", key="new_silence_rule", help="Its id; empty: all rules")
        hours = third.number_input("Hours", min_value=0.1, value=8.0, key="new_silence_hours", format="%g")
        first, second = st.columns(2)
        subject = first.text_input("Subject", key="new_silence_subject", help="Beginning of a fingerprint; empty: all")
        why = second.text_input("Reason", key="new_silence_why", help="Reason, shown to others", max_chars=200)
        if st.form_submit_button("Create silence", type="primary"):
            ends_at = datetime.now(UTC) + timedelta(hours=hours or 0)
            body = {
                "tenant": tenant,
                "rule": rule.strip(),
                "subject": subject.strip(),
                "comment": why.strip(),
                "ends_at": ends_at.isoformat(),
            }
            with outcome("Silence created"):
                visit.control.post(_PATH, body)


def _state(starts_at: str, ends_at: str, now: datetime) -> str:
    if datetime.fromisoformat(ends_at) <= now:
        return "expired"
    return "active" if datetime.fromisoformat(starts_at) <= now else "scheduled"


def _open_row(ids: list[str]) -> None:
    rows = st.session_state[_TABLE].selection.rows
    address.change({"silence": ids[rows[0]] if rows and rows[0] < len(ids) else None})
