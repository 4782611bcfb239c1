"""Notices: what was sent to whom, and what became of it."""

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
    """Draw the latest notices to channels that the viewer may see."""
    rows = visit.control.get("/v1/alert-deliveries", limit=_MOST)["data"]
    show_table(
        "Notices",
        notices_frame(visit, rows),
        key="notices_table",
        columns={
            "State": st.column_config.TextColumn(help="No further attempt after a day; it may have been delivered"),
            "Last fault": st.column_config.TextColumn(width="large"),
        },
        help=f"The latest {_MOST}, as `tollkeeper alerts notifications` has them.",
        empty="Nothing was sent yet.",
    )


def notices_frame(visit: Visit, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table's rows."""
    return Table(
        [
            {
                "Written": visit.formats.moment(datetime.fromisoformat(row["created_at"])),
                "Channel": row["channel"],
                "Event": row["event"],
                "State": _STATES.get(row["state"], row["state"]),
                "Attempts": row["attempts"],
                "Last fault": row["last_error"] or None,
            }
            for row in rows
        ]
    )
