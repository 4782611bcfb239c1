"""The incident page: probable cause; errors, latency, changes and affected tenants on one time axis."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import streamlit as st

from analytics.alerts.links import Links, runbook_of
from analytics.alerts.raised import AlertFacts, raised_alert
from analytics.incidents.causes import Cause, affected_tenants, causes_of, error_name
from analytics.incidents.changes import Change, changes_between
from analytics.incidents.evidence import Evidence, read_evidence
from analytics.incidents.timeline import Step, incident_timeline
from analytics.scope import Period, Scope
from dashboard import address
from dashboard.address import page_link
from dashboard.gateway_state import read_gateway_state
from dashboard.page import Page
from dashboard.panels import contained, note, panel, show_chart, show_table
from dashboard.states import escaped
from dashboard.table import Table
from dashboard.theme import STATUS
from dashboard.views.alert_words import KIND_WORDS
from dashboard.views.time_charts import Line, line_frame, lines, stacked_bars
from dashboard.visit import Visit

_BEFORE: Final = timedelta(minutes=45)
_AFTER: Final = timedelta(minutes=30)
_LONGEST: Final = timedelta(hours=6)
_LONG_COLOR: Final = STATUS["warn"]
_PAGES: Final = {
    "routing": "Open Routing",
    "gpu": "Open GPU",
    "budgets": "Open Budgets",
    "latency": "Open Latency & SLO",
}


def draw(visit: Visit) -> None:
    """Draw the incident of the alert in the URL, else of the chosen range."""
    named = address.get("alert")
    alert: AlertFacts | None = None
    if named is not None:
        alert = visit.read_control(raised_alert, named, visit.viewer.tenant, visit.viewer.team)
        if alert is None:
            st.warning("This alert does not exist, is older than 400 days, or you don't have access to it.")
            return
    scope, noticed = _about(visit, alert)
    if alert is None and scope.start > visit.scope.start:
        start, end = visit.formats.moment(scope.start), visit.formats.moment(scope.end)
        note(f"Only the last {_LONGEST.total_seconds() / 3600:g} hours of the range: {start} – {end}.")
    period = Period(scope.start, scope.end)
    evidence = visit.read(read_evidence, period, noticed, scope.tenant, scope.team, scope.model)
    if alert is not None:
        _draw_alert(visit, alert)
    _draw_causes(visit, evidence, alert, scope)
    changes = visit.read_control(changes_between, scope.start, scope.end, visit.viewer.tenant or scope.tenant)
    everything = sorted((*changes, *_restarts(evidence), *_circuits(visit, scope)), key=lambda one: one.at)
    with contained():
        _draw_time(visit, visit.read(incident_timeline, scope), everything, evidence.began)
    left, right = st.columns(2, gap="small")
    with left:
        _draw_changes(visit, everything)
    with right:
        _draw_tenants(evidence)
    _draw_errors(visit, evidence)


def _about(visit: Visit, alert: AlertFacts | None) -> tuple[Scope, datetime]:
    """Return the incident's scope, and the time when it was noticed."""
    scope = visit.scope
    if alert is None:
        # without an alert: the end of the range, so that failures at any time of the range count
        return (replace(scope, start=max(scope.start, scope.end - _LONGEST)), scope.end)
    opened = datetime.fromisoformat(alert["opened_at"])
    ended = None if alert["resolved_at"] is None else datetime.fromisoformat(alert["resolved_at"])
    end = min(ended or visit.now, opened + _AFTER, visit.now) + timedelta(minutes=1)
    facts = alert["facts"]
    tenant, team = visit.viewer.access.narrowed(alert["tenant"] or None, alert["team"] or None)
    return (
        Scope(
            opened - _BEFORE,
            max(end, opened + timedelta(minutes=1)),
            tenant,
            str(facts["model"]) if facts.get("model") else None,
            asked_at=visit.now,
            team=team,
        ),
        opened,
    )


def _draw_alert(visit: Visit, alert: AlertFacts) -> None:
    formats = visit.formats
    state = "Resolved" if alert["resolved_at"] is not None else "Open"
    opened = formats.moment(datetime.fromisoformat(alert["opened_at"]))
    with panel(str(alert["title"]), unit=f"{alert['severity']}, {KIND_WORDS.get(alert['kind'], alert['kind'])}"):
        st.markdown(escaped(str(alert["summary"])))
        facts = (
            ("State", f"{state} since {opened}"),
            ("Condition", alert["condition"]),
            ("Value", alert["value"]),
            ("Bound", alert["bound"]),
            ("Tenant", alert["tenant"] or "all tenants"),
            ("Owner", alert["owner"]),
            ("Acknowledged by", alert["acknowledged_by"]),
            ("Runbook", alert["runbook"] or runbook_of(str(alert["kind"]), Links())),
        )
        st.markdown("  \n".join(f"**{name}**: {escaped(str(value))}" for name, value in facts if value))
        with st.container(horizontal=True):
            page_link("budgets", "Acknowledge or silence", {"tab": "alerts", "alert": str(alert["id"])})


def _draw_causes(visit: Visit, evidence: Evidence, alert: AlertFacts | None, scope: Scope) -> None:
    causes = causes_of(evidence)
    with panel("Probable cause", help="Attributes that failed, refused or slow requests share and others do not."):
        if not causes:
            if alert is not None and alert["cause"]:
                st.markdown(escaped(str(alert["cause"])))
            elif alert is not None:
                st.markdown(escaped(str(alert["summary"])))
                note("No failed, refused or slow requests explain this alert. See its summary.")
            else:
                note("No failed, refused or slow requests in this range. Widen the time range.")
            return
        for place, cause in enumerate(causes[:4]):
            _draw_cause(visit, cause, place, scope)


def _draw_cause(visit: Visit, cause: Cause, place: int, scope: Scope) -> None:
    text = escaped(cause.text)
    st.markdown(f"**{text}**" if place == 0 else text)
    times = {"range": None, "from": scope.start.isoformat(), "to": scope.end.isoformat(), "alert": None}
    with st.container(horizontal=True):
        wanted = {**times, "q": cause.search or None, "outcome": cause.outcome or None, "tenant": scope.tenant}
        page_link("requests", "Show these requests", wanted, icon=":material/list_alt:")
        if cause.page in _PAGES:
            page_link(cause.page, _PAGES[cause.page], {"alert": None}, icon=":material/open_in_new:")


def _restarts(evidence: Evidence) -> list[Change]:
    """Return the starts and ends of engines as changes."""
    found = []
    for one in evidence.engines:
        for at, what in ((one.loaded_at, "loaded"), (one.ended_at, "stopped")):
            if at is not None:
                found.append(Change(at, "engine host", "restart", f"Engine of {one.replica} ({one.model}) {what}"))
    return found


def _circuits(visit: Visit, scope: Scope) -> list[Change]:
    """Return the opening and closing of circuits since the gateway's start; [] if the viewer is of one tenant."""
    if visit.viewer.tenant is not None:
        return []
    return [
        Change(
            one.at,
            "gateway",
            "circuit",
            f"Circuit of {one.target} opened: {one.why}" if one.is_left_alone else f"Circuit of {one.target} closed",
        )
        for one in read_gateway_state().changes
        if scope.start <= one.at <= scope.end
    ]


def _draw_time(visit: Visit, found: Sequence[Step], changes: Sequence[Change], began: datetime) -> None:
    if not found:
        with panel("Errors and latency"):
            note("No requests in this range. Widen the time range.")
        return
    zone = visit.formats.zone
    steps = [one.at for one in found]
    counts = [
        Line("answered", [one.requests - one.errors - one.refused for one in found], STATUS["good"]),
        Line("refused", [one.refused for one in found], STATUS["warn"]),
        Line("failed", [one.errors for one in found], STATUS["bad"]),
    ]
    bars = stacked_bars(steps, counts, zone)
    _mark(bars, changes, began, visit)
    show_chart(
        "Requests",
        bars,
        key="incident_requests",
        unit="by outcome",
        help="Dashed line: the incident began. Dotted lines: changes, restarts and circuits, listed below.",
        data=lambda: line_frame(steps, counts),
    )
    times = [
        Line("p50", [_ms(one.p50_ns) for one in found], STATUS["good"]),
        Line("p95", [_ms(one.p95_ns) for one in found], _LONG_COLOR),
    ]
    drawn = lines(steps, times, zone, suffix=" ms")
    _mark(drawn, changes, began, visit)
    show_chart(
        "Time to first token",
        drawn,
        key="incident_latency",
        unit="ms",
        help="For answered requests; without streaming, the time to the complete answer.",
        data=lambda: line_frame(steps, times),
    )


def _mark(plot: Any, changes: Sequence[Change], began: datetime, visit: Visit) -> None:
    zone = visit.formats.zone
    plot.add_vline(x=began.astimezone(zone), line={"color": STATUS["bad"], "width": 1.5, "dash": "dash"})
    for one in changes[:50]:
        plot.add_vline(x=one.at.astimezone(zone), line={"color": STATUS["neutral"], "width": 1, "dash": "dot"})


def _ms(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6


def _draw_changes(visit: Visit, changes: Sequence[Change]) -> None:
    show_table(
        "Changes",
        Table([{"When": visit.formats.moment(one.at), "What": one.words} for one in reversed(changes)]),
        key="incident_changes",
        text_lines=2,
        columns={"What": st.column_config.TextColumn(width="large")},
        help="Changes of configuration, prices, limits and rollouts from the audit log, engine restarts, and circuits "
        "that opened or closed.",
        empty="No changes or restarts in this range.",
    )


def _draw_tenants(evidence: Evidence) -> None:
    show_table(
        "Affected tenants",
        Table([{"Tenant": name or "none", "Requests": count} for name, count in affected_tenants(evidence).items()]),
        key="incident_tenants",
        columns={"Requests": st.column_config.NumberColumn(format="localized", help="Failed or refused")},
        empty="No failed or refused requests.",
    )


def _draw_errors(visit: Visit, evidence: Evidence) -> None:
    counts: dict[tuple[str, str, str, str], int] = {}
    for one in (*evidence.since("error"), *evidence.since("rejected")):
        name = (error_name(one), one.pool, one.target, one.upstream_message)
        counts[name] = counts.get(name, 0) + one.count
    rows = sorted(counts.items(), key=lambda item: -item[1])[:100]
    show_table(
        "Errors",
        Table(
            [
                {"Error": error, "Requests": count, "Pool": pool, "Target": target, "Upstream message": said}
                for (error, pool, target, said), count in rows
            ]
        ),
        key="incident_errors",
        columns={
            "Error": st.column_config.TextColumn(width="large", help="Error code, upstream status and error type"),
            "Upstream message": st.column_config.TextColumn(
                width="large", help="Message of the provider, without prompt text"
            ),
        },
        empty="No failed or refused requests.",
    )


INCIDENT = Page(
    "Incident",
    "incident",
    ":material/emergency_home:",
    draw,
    filters=("range", "tenant", "team", "model"),
    is_live=False,
    about="Causes of failed, refused or slow requests, with changes and affected tenants on one time axis.",
)
