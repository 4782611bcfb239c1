"""Rollouts on the routing page: each candidate's share of a route, and the results of both arms."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

import streamlit as st

from analytics.comparison.arms import ReportLine, RolloutReport
from backends.http_client.control_plane import path_segment
from dashboard import address
from dashboard.panels import Figure, contained, note, panel, show_figures, show_table
from dashboard.rollout_reports import compared_arms
from dashboard.slow_answers import Pending
from dashboard.states import escaped
from dashboard.table import Table
from dashboard.views.admin_parts import moment
from dashboard.visit import Visit

_TABLE: Final = "routing_rollouts"
_CHOSEN: Final = "rollout"  # URL parameter
_KEPT_SECONDS: Final = 120.0
_STATES: Final = {
    "running": "▶ running",
    "paused": "❚❚ paused",
    "promoted": "✓ promoted",
    "rolled_back": "✗ rolled back",
    "aborted": "✗ aborted",
}
_number, _text = st.column_config.NumberColumn, st.column_config.TextColumn
_COLUMNS: Final[dict[str, Any]] = {
    "Rollout": _text(),
    "Route": _text(width="small", help="The name that applications ask for"),
    "Incumbent": _text(width="small", help="The model that answers there"),
    "Candidate": _text(width="small", help="The model under test"),
    "State": _text(width="small"),
    "Share": st.column_config.ProgressColumn(
        "Share %",
        format="%.1f",
        min_value=0,
        max_value=100,
        help="Current share of the route's requests that goes to the candidate",
    ),
    "Step": _number(format="%d", width="small", help="Current step, from 1"),
    "Steps": _number(format="%d", width="small", help="Number of steps"),
    "Changed": st.column_config.DatetimeColumn(format="D MMM HH:mm:ss"),
    "Reason": _text(width="large", help="The reason of the last change"),
}
_ARMS: Final[dict[str, Any]] = {
    "Arm": _text(width="small"),
    "Model": _text(width="small"),
    "Requests": _number(format="localized", help="In the window of the rollout's guards"),
    "Errors": _number(format="localized", help="Failures of the model; disconnected clients do not count"),
    "Refusals": _number(format="localized", help="Answers in which the model refuses"),
    "TTFT p95": _number("TTFT p95 ms", format="%.4g", help="95th percentile (accurate to 5 %)"),
    "Inter-token p95": _number(
        "Inter-token p95 ms", format="%.4g", help="Inter-token latency, 95th percentile (accurate to 5 %)"
    ),
    "Duration p95": _number(
        "Duration p95 ms", format="%.4g", help="From arrival to end, 95th percentile (accurate to 5 %)"
    ),
    "Cost": _number("Mean cost USD", format="%.3g", help="Per request, an estimate for comparison; bills are exact"),
    "Tokens": _number("Mean tokens out", format="%.4g", help="Of a request"),
}
_LINES: Final[dict[str, Any]] = {
    "Measure": _text(width="small"),
    "Incumbent": _text(width="small"),
    "Candidate": _text(width="small"),
    "Compared": _text(width="small", help="ratio: candidate over incumbent. difference: candidate minus incumbent"),
    "From": _text("95 % from", width="small", help="Interval of the comparison"),
    "To": _text("to", width="small"),
    "Seen in": _number(
        "Observations", format="localized", help="Number of observations from which the interval is computed"
    ),
}
_HELP: Final = (
    "A candidate takes a growing share of a route and is rolled back automatically if it is worse. Change it "
    "with `tollkeeper rollouts` or the control plane (docs/rollout.md)."
)


def draw_rollouts(visit: Visit) -> None:
    """Draw all rollouts (for viewers of the whole installation), and details of the selected one.

    Raises PermissionDenied if the role may not read them.
    """
    rows = visit.control.get_all("/v1/rollouts")
    if not rows:
        with panel("Rollouts", help="Candidate models that take a growing share of a route."):
            note("No rollouts. Start one with `tollkeeper rollouts create` (docs/rollout.md).")
        return
    ids = [str(row["id"]) for row in rows]
    chosen = address.get(_CHOSEN)
    place = ids.index(chosen) if chosen in ids else None
    held, wanted = st.session_state.get(_TABLE), [] if place is None else [place]
    if ([] if held is None else list(held["selection"]["rows"])) != wanted:
        st.session_state[_TABLE] = {"selection": {"rows": wanted}}  # the selection in the URL
    show_table(
        "Rollouts",
        Table([_row(visit, row) for row in rows], columns=list(_COLUMNS)),
        key=_TABLE,
        columns=_COLUMNS,
        help=f"{_HELP} Select a row to see results of both arms.",
        on_select=partial(_choose, ids),
    )
    if place is None:
        return
    with contained():
        _standing(visit, rows[place])
    with contained():
        _report(visit, ids[place])


def _row(visit: Visit, row: Mapping[str, Any]) -> dict[str, object]:
    steps = row.get("rules", {}).get("steps") or ()
    return {
        "Rollout": row["id"],
        "Route": row["route"],
        "Incumbent": row["incumbent"],
        "Candidate": row["candidate"],
        "State": _STATES.get(row["state"], row["state"]),
        "Share": row["percent"],
        "Step": row["step"] + 1,
        "Steps": len(steps) or None,
        "Changed": moment(visit, row["updated_at"]),
        "Reason": row["reason"],
    }


def _choose(ids: Sequence[str]) -> None:
    """Write the id of the selected row to the URL; `ids` are the rows as drawn."""
    places = st.session_state[_TABLE].selection.rows
    address.change({_CHOSEN: ids[places[0]] if places and places[0] < len(ids) else None})


def _standing(visit: Visit, rollout: Mapping[str, Any]) -> None:
    """Draw the current figures of both arms, which gateways check against the guards."""
    found = visit.control.get(f"/v1/rollouts/{path_segment(str(rollout['id']))}/standing")
    guards = rollout.get("rules", {}).get("guards", {})
    window = f"of the last {guards['window_seconds'] / 60:g} min" if "window_seconds" in guards else "of its window"
    show_table(
        f"{rollout['id']}: what gateways see now",
        Table([_arm(arm, str(rollout[arm]), found[arm]) for arm in ("incumbent", "candidate")], columns=list(_ARMS)),
        key="routing_rollout_standing",
        columns=_ARMS,
        help=f"Both arms {window}, summed over gateways. Every second, each gateway compares these figures with the "
        f"rollout's guards. The same as `tollkeeper rollouts show {rollout['id']}`.",
    )
    gateways = visit.formats.counted(found["gateways"], "gateway")
    note(
        f"Reported by {gateways}. The candidate has had {visit.formats.counted(found['step_requests'], 'request')} "
        "since the step started."
    )
    for breach in found["breaches"]:
        st.markdown(f":red[● {escaped(breach)}]")


def _arm(arm: str, model: str, seen: Mapping[str, Any]) -> dict[str, object]:
    return {
        "Arm": arm,
        "Model": model,
        "Requests": seen["requests"],
        "Errors": seen["errors"],
        "Refusals": seen["refusals"],
        "TTFT p95": seen["ttft_p95_ms"],
        "Inter-token p95": seen["inter_token_p95_ms"],
        "Duration p95": seen["duration_p95_ms"],
        "Cost": seen["mean_cost_usd"],
        "Tokens": seen["mean_output_tokens"],
    }


def _report(visit: Visit, rollout: str) -> None:
    """Draw the comparison of both arms, and of shadow copies with their originals, over the range, with intervals."""
    start, end = (each.replace(second=0, microsecond=0) for each in (visit.scope.start, visit.scope.end))
    end += timedelta(minutes=1)  # one cached result per minute
    found = visit.read_beside(compared_arms, rollout, start, end, keep_seconds=_KEPT_SECONDS)
    if isinstance(found, Pending):
        with panel(f"{rollout}: results of both arms"):
            note("Requests of both arms are being compared; this takes a few seconds …")
        return
    count = visit.formats.count
    show_figures(
        [
            Figure(
                "Incumbent's requests",
                count(found.incumbent_requests),
                "in this range",
                "Requests of the rollout that were assigned to the incumbent.",
            ),
            Figure(
                "Candidate's requests",
                count(found.candidate_requests),
                _share(visit, found),
                "Requests assigned to the candidate, including those that the incumbent answered instead.",
            ),
            Figure(
                "Copies",
                count(found.copies),
                "belong to no tenant",
                "Requests of the incumbent that were copied to the candidate; the answers were discarded.",
            ),
        ]
    )
    for of, title, help in (
        ("arms", "results of both arms", "Requests of this range, drawn for one or the other."),
        ("copies", "shadows and their originals", "The same requests, sent to both."),
    ):
        lines = [line for line in found.lines if line.of == of and (of == "arms" or found.copies)]
        if lines:
            show_table(
                f"{rollout}: {title}",
                Table([_line(line) for line in lines], columns=list(_LINES)),
                key=f"routing_rollout_{of}",
                columns=_LINES,
                data=partial(_whole, lines),
                help=f"{help} Each comparison with its 95 % interval: an interval that contains 1 (ratio) or 0 "
                f"(difference) may be chance. Same as `tollkeeper rollouts report {rollout}`.",
            )


def _whole(lines: Sequence[ReportLine]) -> Table:
    return Table([line.as_row() for line in lines])


def _share(visit: Visit, found: RolloutReport) -> str:
    both = found.incumbent_requests + found.candidate_requests
    return f"{visit.formats.percent(found.candidate_requests / both if both else None)} of requests"


def _line(line: ReportLine) -> dict[str, object]:
    is_share = "rate" in line.measure or line.measure == "same text"
    told = line.comparison
    ends = (None, None, None) if told is None else (told.value, told.low, told.high)
    value, low, high = (_written(end, is_share=is_share and line.how != "ratio") for end in ends)
    return {
        "Measure": line.measure.replace("ttft", "TTFT"),
        "Incumbent": _written(line.incumbent, is_share=is_share),
        "Candidate": _written(line.candidate, is_share=is_share),
        "Compared": None if value is None else f"{line.how} {value}",
        "From": low,
        "To": high,
        "Seen in": None if told is None else told.count,
    }


def _written(value: float | None, *, is_share: bool) -> str | None:
    """Format a figure with four significant digits, a share in percent; `None` for `None` and infinity."""
    if value is None or value in (float("inf"), float("-inf")):
        return None
    digits = format(Decimal(f"{100 * value if is_share else value:.4g}"), "f")  # never 1e-05
    return f"{digits} %" if is_share else digits
