"""Open and resolved alerts: state, facts, acknowledgement, and a silence."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import streamlit as st

from analytics.alerts.raised import AlertFacts, raised_alerts
from backends.http_client.control_plane import path_segment
from dashboard import address
from dashboard.address import page_link
from dashboard.controls import toggle
from dashboard.formats import UNKNOWN
from dashboard.forms import outcome
from dashboard.panels import contained, note, panel, show_table
from dashboard.states import escaped
from dashboard.table import Table
from dashboard.viewer import ADMINS
from dashboard.views.alert_words import KIND_WORDS, since_words
from dashboard.visit import Visit

_TABLE: Final = "alerts_table"
_MOST: Final = 500
_WIDE: Final = 265  # pixels: as much as a phone shows
_SILENCE_HOURS: Final = (1, 4, 8, 24, 72, 168)


def draw_alerts(visit: Visit) -> None:
    """Draw the open alerts of the chosen tenant or team, or all alerts if past ones are included."""
    scope = visit.scope
    with_past = toggle("past", "Include resolved alerts", help=f"The latest {_MOST}; alerts are kept for 400 days")
    alerts: Sequence[AlertFacts] = visit.read_control(raised_alerts, scope.tenant, scope.team, not with_past, _MOST)
    show_table(
        "Alerts" if with_past else "Open alerts",
        alerts_frame(visit, alerts),
        key=_TABLE,
        columns=_columns(),
        text_lines=3,
        help="Same as `tollkeeper alerts list`, latest first. An alert is open while its condition "
        "holds. Select a row to acknowledge or silence it.",
        data=lambda: Table([_exported(alert) for alert in alerts]),
        on_select=partial(_open_row, [str(alert["id"]) for alert in alerts]),
        empty="No open alerts." if not with_past else "No alerts yet. Alert rules raise them.",
    )
    chosen = address.get("alert")
    alert = next((alert for alert in alerts if alert["id"] == chosen), None)
    if alert is not None:
        with contained():
            _detail(visit, alert)
    elif chosen is not None:
        note("The alert in this link is not listed; it may be resolved. Turn on *Include resolved alerts*.")


def alerts_frame(visit: Visit, alerts: Sequence[AlertFacts]) -> Table:
    """Return the table of alerts."""
    formats = visit.formats
    return Table(
        [
            {
                "What": alert["summary"],
                "Severity": alert["severity"],
                "State": _state(alert),
                "Kind": KIND_WORDS.get(alert["kind"], alert["kind"]),
                "Tenant": alert["tenant"] or "whole installation",
                "Team": alert["team"],
                "Since": formats.moment(datetime.fromisoformat(alert["opened_at"])),
                "Duration": since_words(alert["opened_at"], alert["resolved_at"], visit.now),
                "Acknowledged by": alert["acknowledged_by"],
                "Rule": alert["rule"],
            }
            for alert in alerts
        ]
    )


def _state(alert: AlertFacts) -> str:
    if alert["resolved_at"] is not None:
        return "resolved"
    if alert["acknowledged_at"] is not None:
        return "acknowledged"
    return "silenced" if alert["is_silenced"] else "open"


def _detail(visit: Visit, alert: AlertFacts) -> None:
    formats = visit.formats
    whose = alert["tenant"] or "whole installation"
    with panel(str(alert["summary"]), unit=f"{alert['severity']}, {whose}, rule {alert['rule']}"):
        told = "not notified: silenced, or its rule has no channel" if alert["is_silenced"] else "notified"
        lines = [
            f"Open since {formats.moment(datetime.fromisoformat(alert['opened_at']))}; {told}.",
            "Not resolved." if alert["resolved_at"] is None else "Resolved.",
        ]
        if alert["acknowledged_at"] is not None:
            at = formats.moment(datetime.fromisoformat(alert["acknowledged_at"]))
            lines.append(f"Acknowledged by {alert['acknowledged_by']} on {at}.")
        note(" ".join(lines))
        facts = [{"Field": name.replace("_", " "), "Value": str(value)} for name, value in alert["facts"].items()]
        if facts:
            st.dataframe(Table(facts).as_arrow(), hide_index=True, placeholder=UNKNOWN, lazy=False, key="alert_facts")
        if alert["cause"]:
            st.markdown(f"**Cause**: {escaped(str(alert['cause']))}")
        page_link("incident", "Show the incident", {"alert": str(alert["id"])}, icon=":material/emergency_home:")
        with st.container(horizontal=True, vertical_alignment="center"):
            if alert["acknowledged_at"] is None and visit.viewer.token is not None:
                if st.button("Acknowledge", icon=":material/pan_tool:", type="primary", key="alert_acknowledge"):
                    with outcome("Acknowledged"):
                        visit.control.post(f"/v1/alerts/{path_segment(str(alert['id']))}/acknowledge", {})
            if alert["resolved_at"] is None and visit.viewer.role in ADMINS:
                _silence(visit, alert)
            st.button("Close", on_click=address.change, args=({"alert": None},), key="alert_close")


def _silence(visit: Visit, alert: AlertFacts) -> None:
    with st.popover("Silence", icon=":material/notifications_off:"), st.form("silence_alert", border=False):
        hours = st.selectbox(
            "For", _SILENCE_HOURS, index=2, key="silence_hours", format_func=lambda hours: f"{hours} hours"
        )
        comment = st.text_input("Reason", key="silence_why", help="Reason, shown to others", max_chars=200)
        if st.form_submit_button("Silence this alert", type="primary"):
            with outcome("Silenced"):
                # The silence gets the rule's owner: a tenant's silence does not apply to the installation's rules.
                rule = visit.control.get(f"/v1/alert-rules/{path_segment(str(alert['rule']))}")
                ends_at = datetime.now(UTC) + timedelta(hours=int(hours))
                visit.control.post(
                    "/v1/alert-silences",
                    {
                        "tenant": rule["tenant_id"],
                        "rule": alert["rule"],
                        "subject": str(alert["fingerprint"])[:300],
                        "comment": comment.strip(),
                        "ends_at": ends_at.isoformat(),
                    },
                )


def _exported(alert: AlertFacts) -> Mapping[str, object]:
    return {**alert, "facts": ", ".join(f"{name}={value}" for name, value in alert["facts"].items())}


def _columns() -> dict[str, Any]:
    return {
        "State": st.column_config.TextColumn(
            help="open, acknowledged, silenced (not sent: a silence, or no channel) or resolved"
        ),
        "Severity": st.column_config.TextColumn(help="page: needs attention now; ticket: during working hours"),
        "What": st.column_config.TextColumn(width=_WIDE),
        "Team": st.column_config.TextColumn(),
        "Duration": st.column_config.TextColumn(help="How long the alert has been, or was, open"),
    }


def _open_row(ids: Sequence[str]) -> None:
    rows = st.session_state[_TABLE].selection.rows
    address.change({"alert": ids[rows[0]] if rows and rows[0] < len(ids) else None})
