"""Rollouts on the routing page: which candidate takes which share of a route, and why it stands there."""

from typing import Any, Final

import streamlit as st

from dashboard.panels import note, panel, show_table
from dashboard.table import Table
from dashboard.views.admin_parts import moment
from dashboard.visit import Visit

_STATES: Final = {
    "running": "▶ running",
    "paused": "❚❚ paused",
    "promoted": "✓ promoted",
    "rolled_back": "✗ rolled back",
    "aborted": "✗ aborted",
}
_COLUMNS: Final[dict[str, Any]] = {
    "Share": st.column_config.ProgressColumn(
        "Share %", format="%.1f", min_value=0, max_value=100, help="Of the route's requests that the candidate has now"
    ),
    "Step": st.column_config.NumberColumn(format="%d", help="Of the rollout's steps, from 1"),
    "Why": st.column_config.TextColumn(width="large", help="The reason of the last change"),
    "Changed": st.column_config.DatetimeColumn(format="D MMM HH:mm:ss", width="small"),
}


def draw_rollouts(visit: Visit) -> None:
    """Draw all rollouts, the platform's own matter. Raises PermissionDenied where the role may not read them."""
    rows = visit.control.get_all("/v1/rollouts")
    if not rows:
        with panel("Rollouts", help="A candidate that takes over a route step by step, judged at each."):
            note("No model is being rolled out. `tollkeeper rollout` begins one (docs/rollout.md).")
        return
    show_table(
        "Rollouts",
        Table(
            [
                {
                    "Rollout": row["id"],
                    "Route": row["route"],
                    "Incumbent": row["incumbent"],
                    "Candidate": row["candidate"],
                    "State": _STATES.get(row["state"], row["state"]),
                    "Share": row["percent"],
                    "Step": row["step"] + 1,
                    "Why": row["reason"],
                    "Changed": moment(visit, row["updated_at"]),
                }
                for row in rows
            ]
        ),
        key="routing_rollouts",
        columns=_COLUMNS,
        help="A candidate takes a growing share of a route and is rolled back by itself where it is worse. Changed by "
        "`tollkeeper rollout` and the control plane (docs/rollout.md).",
    )
