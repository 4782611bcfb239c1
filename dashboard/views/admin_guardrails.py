"""Guardrails and what they met: the policies in force, and incidents of abuse. Changed by command and API alone."""

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from dashboard.panels import contained, note, show_table
from dashboard.table import Table
from dashboard.views.admin_parts import moment
from dashboard.visit import Visit

_text, _number = st.column_config.TextColumn, st.column_config.NumberColumn
_MOST: Final = 200
_EVERY: Final = "all"
_POLICIES: Final[dict[str, Any]] = {
    "Guardrail": _text(width="small"),
    "Tenants": _text(width="small", help="Whose requests it covers"),
    "Routes": _text(width="small", help="Requests for which it covers"),
    "Before the model": _text(width="large", help="Stages in order: what each does; dry: it only records"),
    "After the model": _text(width="large", help="Stages that look at answers"),
    "Made": st.column_config.DatetimeColumn(format="D MMM YYYY HH:mm", width="small"),
}
_INCIDENTS: Final[dict[str, Any]] = {
    "Began": st.column_config.DatetimeColumn(format="D MMM HH:mm:ss", width="small"),
    "Open": st.column_config.CheckboxColumn(width="small", help="Seen again within its window"),
    "Most": _number(format="localized", help="The most that was counted in one window"),
    "Limit": _number(format="localized", help="What the policy allows in a window"),
    "Refused": _number(format="localized", help="Requests above the limit that were refused with status 429"),
    "What": _text(width="large"),
}


def draw_guardrails(visit: Visit) -> None:
    """Draw the policies, for who administers the platform, and incidents."""
    if visit.viewer.tenant is None:
        with contained():
            _policies(visit)
    with contained():
        _incidents(visit)


def _policies(visit: Visit) -> None:
    rows = visit.control.get_all("/v1/guardrails")
    show_table(
        "Guardrails",
        Table(
            [
                {
                    "Guardrail": row["id"],
                    "Tenants": ", ".join(row["rules"].get("tenants", ())) or _EVERY,
                    "Routes": ", ".join(row["rules"].get("routes", ())) or _EVERY,
                    "Before the model": _stages(row["rules"], "input"),
                    "After the model": _stages(row["rules"], "output"),
                    "Made": moment(visit, row["created_at"]),
                }
                for row in rows
            ]
        ),
        key="admin_guardrails",
        columns=_POLICIES,
        help="Ordered stages that look at what is asked and answered. `tollkeeper guardrails` makes and tests them "
        "(docs/guardrails.md).",
        empty="There is no guardrail: nothing looks at what is asked and answered.",
    )


def _incidents(visit: Visit) -> None:
    page = visit.control.get("/v1/abuse", limit=_MOST)
    show_table(
        "Abuse",
        Table(
            [
                {
                    "Began": moment(visit, row["first_at"]),
                    "Open": row["is_open"],
                    "Tenant": row["tenant"],
                    "Key": row["key"],
                    "Kind": str(row["kind"]).replace("_", " "),
                    "Most": row["peak"],
                    "Limit": row["limit"],
                    "Refused": row["throttled"],
                    "What": row["summary"],
                }
                for row in page["data"]
            ]
        ),
        key="admin_abuse",
        columns=_INCIDENTS,
        help="Keys that were used as no application uses one; `tollkeeper abuse` explains each (docs/abuse.md).",
        empty="No key was used in a way that a policy counts as abuse.",
    )
    if page["has_more"]:
        note(f"The last {_MOST} are shown.")


def _stages(rules: Mapping[str, Any], direction: str) -> str:
    """Say what a policy does on one side of the model, in its order."""
    stages = [one for one in rules.get("stages", ()) if one.get("direction", "input") == direction]
    return " › ".join(
        f"{one['name']}: {one.get('action', 'block')}{' (dry)' if one.get('dry_run') else ''}" for one in stages
    )
