"""The audit trail: who changed what, when and from where, the latest first."""

import json
from typing import Any, Final

import streamlit as st

from dashboard import controls
from dashboard.panels import note, show_table
from dashboard.table import Table
from dashboard.views.admin_parts import moment
from dashboard.visit import Visit

_text = st.column_config.TextColumn
_MOST: Final = 500
_COLUMNS: Final[dict[str, Any]] = {
    "When": st.column_config.DatetimeColumn(format="D MMM YYYY HH:mm:ss", width="small"),
    "Who": _text(help="The token's or user's name and id; `admin` is the installation's owner"),
    "Did": _text(width="small", help="A noun and a verb, such as key.revoke"),
    "To": _text(help="What was changed"),
    "From": _text(width="small", help="The address of who asked"),
    "Detail": _text(width="large", help="What it was changed to; never a secret"),
}
_NOUNS: Final = (
    "all", "tenant", "team", "project", "key", "limit", "budget", "model", "route", "pool", "target", "price",
    "standard_cost", "token", "user", "alert_rule", "alert_channel", "slo",
)  # fmt: skip


def draw_audit(visit: Visit) -> None:
    """Draw the last changes, of one noun or tenant where it is chosen."""
    with st.container(horizontal=True, vertical_alignment="center"):
        noun = controls.select("noun", "What", _NOUNS, default="all", help="Of which kind of thing")
        tenant = visit.viewer.tenant or controls.text("of", "Tenant", placeholder="All tenants")
    asked: dict[str, str | int] = {"limit": _MOST}
    asked |= {} if noun == "all" else {"action": noun}
    asked |= {"tenant": tenant} if tenant else {}
    page = visit.control.get("/v1/audit", **asked)
    frame = Table(
        [
            {
                "When": moment(visit, row["at"]),
                "Who": row["actor"],
                "Did": row["action"],
                "To": row["subject"],
                "From": row["address"],
                "Detail": json.dumps(row["detail"], ensure_ascii=False) if row["detail"] else "",
            }
            for row in page["data"]
        ],
        columns=list(_COLUMNS),
    )
    show_table(
        "Changes",
        frame,
        key="admin_audit",
        columns=_COLUMNS,
        help="Every change of the configuration, whoever made it: the dashboard, the command line, a program.",
        empty="Nothing was changed that fits.",
    )
    if page["has_more"]:
        note(f"The last {_MOST} changes are shown; GET /v1/audit of the control plane gives all.")
