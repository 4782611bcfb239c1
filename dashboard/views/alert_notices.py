"""Notifications: channel, event and delivery state."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import streamlit as st

from dashboard.panels import show_table
from dashboard.table import Table
from dashboard.visit import Visit

_STATES: Final = {
    "waiting": "waiting",
    "sending": "being sent",
    "delivered": "delivered",
    "unknown": "may have arrived",
    "given_up": "given up",
}
_MOST: Final = 500


def draw_notices(visit: Visit) -> None:
    """Draw the latest notifications to channels that the viewer may see."""
    rows = visit.control.get("/v1/alert-deliveries", limit=_MOST)["data"]
    show_table(
        "Notifications",
        notices_frame(visit, rows),
        key="notices_table",
        columns={
            "State": st.column_config.TextColumn(
                help="given up: no further attempts after a day. may have arrived: the delivery was not confirmed"
            ),
            "Last error": st.column_config.TextColumn(width="large"),
        },
        help=f"The latest {_MOST}, same as `tollkeeper alerts notifications`.",
        empty="No notifications yet.",
    )


def notices_frame(visit: Visit, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of notifications."""
    return Table(
        [
            {
                "Created": visit.formats.moment(datetime.fromisoformat(row["created_at"])),
                "Channel": row["channel"],
                "Event": row["event"],
                "State": _STATES.get(row["state"], row["state"]),
                "Attempts": row["attempts"],
                "Last error": row["last_error"] or None,
            }
            for row in rows
        ]
    )
