"""Guardrail policies, their findings, and abuse incidents. Read-only: changes go through the command line or API."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import streamlit as st

from analytics.guardrails import StageCount, stage_counts
from analytics.scope import Period
from dashboard import controls
from dashboard.panels import contained, note, panel, show_table
from dashboard.slow_answers import Pending
from dashboard.table import Table
from dashboard.views.admin_parts import moment
from dashboard.visit import Visit

_text, _number = st.column_config.TextColumn, st.column_config.NumberColumn
_MOST: Final = 200
_EVERY: Final = "all"
_PERIODS: Final = {"24h": ("the last 24 hours", 24), "7d": ("the last 7 days", 168), "30d": ("the last 30 days", 720)}
_KEPT_SECONDS: Final = 60.0
_SIDES: Final = {"input": "before the model", "output": "after the model"}
_DONE: Final = {"block": "blocked", "redact": "redacted", "flag": "noted"}
_FOUND: Final[dict[str, Any]] = {
    "Tenant": _text(width="small"),
    "Stage": _text(width="small", help="Stage name in the policy"),
    "Where": _text(width="small", help="Before the model: in the request. After it: in the answer"),
    "Action": _text(width="small", help="Action on such a request; a dry-run stage only counts"),
    "Requests": _number(format="localized", help="Requests in which the stage found something"),
    "Share of requests": _number(format="%.2f %%", help="Share of the tenant's requests in this time"),
    "Findings": _number(format="localized", help="Findings: a request may have several"),
    "Kinds": _text(width="medium", help="Kinds of findings, each with its number of requests"),
}
_POLICIES: Final[dict[str, Any]] = {
    "Guardrail": _text(width="small"),
    "Tenants": _text(width="small", help="Tenants whose requests it covers"),
    "Routes": _text(width="small", help="Routes whose requests it covers"),
    "Before the model": _text(width="medium", help="Stages in order, with their action; dry: only records"),
    "After the model": _text(width="medium", help="Stages that inspect answers"),
    "Created": st.column_config.DatetimeColumn(format="D MMM YYYY HH:mm"),
}
_INCIDENTS: Final[dict[str, Any]] = {
    "Started": st.column_config.DatetimeColumn(format="D MMM HH:mm:ss", width="small"),
    "Open": st.column_config.CheckboxColumn(width="small", help="Seen again within the rule's window"),
    "Highest count": _number(format="localized", help="Most requests or findings counted in one window"),
    "Limit": _number(format="localized", help="Maximum that the policy allows in a window"),
    "Refused": _number(format="localized", help="Requests above the limit that were refused with status 429"),
    "What": _text(width="large"),
}


def draw_guardrails(visit: Visit) -> None:
    """Draw policies (only for viewers of all tenants), abuse incidents, and findings by stage."""
    if visit.viewer.tenant is None:
        with contained():
            _policies(visit)
    with contained():
        _incidents(visit)
    with contained():
        _findings(visit)


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
                    "Created": moment(visit, row["created_at"]),
                }
                for row in rows
            ]
        ),
        key="admin_guardrails",
        columns=_POLICIES,
        help="Ordered stages that inspect requests and answers. Create and test them with `tollkeeper "
        "guardrails` (docs/guardrails.md).",
        empty="No guardrails: requests and answers are not inspected.",
    )


def _findings(visit: Visit) -> None:
    chosen = controls.select(
        "found", "Found in", list(_PERIODS), default="24h", format_func=lambda name: f"Found in {_PERIODS[name][0]}"
    )
    words, hours = _PERIODS[chosen]
    until = visit.now.replace(second=0, microsecond=0) + timedelta(minutes=1)  # one cached result per minute
    counts = visit.read_slow(
        stage_counts, Period(until - timedelta(hours=hours), until), visit.viewer.tenant, keep_seconds=_KEPT_SECONDS
    )
    if isinstance(counts, Pending):
        with panel("Findings by stage"):
            note("Verdicts are loading …")
        return
    show_table(
        "Findings by stage",
        Table([_found(one) for one in counts], columns=list(_FOUND)),
        key="admin_guardrails_found",
        columns=_FOUND,
        data=lambda: _found_whole(counts),
        help="Counted from requests' verdicts, which have the kind of finding, never the text. Same as "
        f"`tollkeeper guardrails report --hours {hours}`.",
        empty=f"No guardrail stage found anything in {words}.",
    )


def _found(one: StageCount) -> dict[str, object]:
    return {
        "Tenant": one.tenant,
        "Stage": one.stage,
        "Where": _SIDES.get(one.direction, one.direction),
        "Action": "dry run: would have " + _DONE.get(one.action, one.action)
        if one.is_dry_run
        else _DONE.get(one.action, one.action),
        "Requests": one.requests,
        "Share of requests": 100 * one.requests / one.of_requests if one.of_requests else None,
        "Findings": one.findings,
        "Kinds": ", ".join(f"{kind} {count:,}" for kind, count in sorted(one.kinds.items())),
    }


def _found_whole(counts: Sequence[StageCount]) -> Table:
    return Table([{**_found(one), "of_requests": one.of_requests, "dry": one.is_dry_run} for one in counts])


def _incidents(visit: Visit) -> None:
    page = visit.control.get("/v1/abuse", limit=_MOST)
    show_table(
        "Abuse",
        Table(
            [
                {
                    "Started": moment(visit, row["first_at"]),
                    "Open": row["is_open"],
                    "Tenant": row["tenant"],
                    "Key": row["key"],
                    "Kind": str(row["kind"]).replace("_", " "),
                    "Highest count": row["peak"],
                    "Limit": row["limit"],
                    "Refused": row["throttled"],
                    "What": row["summary"],
                }
                for row in page["data"]
            ]
        ),
        key="admin_abuse",
        columns=_INCIDENTS,
        help="Incidents of misused keys; `tollkeeper abuse` explains each (docs/abuse.md).",
        empty="No abuse incidents.",
    )
    if page["has_more"]:
        note(f"The last {_MOST} are shown.")


def _stages(rules: Mapping[str, Any], direction: str) -> str:
    """Return a policy's stages in one direction (input or output), in order; a stage may have both directions."""
    stages = [one for one in rules.get("stages", ()) if one.get("direction", "input") in (direction, "both")]
    return " › ".join(
        f"{one['name']}: {one.get('action', 'block')}{' (dry)' if one.get('dry_run') else ''}" for one in stages
    )
