"""SLOs on the latency page: state, burn rates, and error budgets over time."""

from collections.abc import Sequence
from typing import Any, Final

import streamlit as st

from analytics.query_time import QueryTime
from analytics.slo.budget_history import budget_history
from analytics.slo.objective_states import ObjectiveList, objective_list, objective_states
from analytics.slo.report import STATUS_WORDS, ObjectiveState
from contracts.rules.objectives import BURN_PAIRS, Objective
from dashboard.controls import select
from dashboard.panels import contained, note, panel, show_chart, show_table
from dashboard.slow_answers import Pending
from dashboard.table import Table
from dashboard.theme import STATUS
from dashboard.views.slo_form import draw_slo_form, may_create
from dashboard.views.time_charts import Line, line_frame, lines
from dashboard.visit import Visit

_KEPT_SECONDS: Final = 15
_SIGNS: Final = {"met": "✓ ", "burning": "▲ ", "broken": "✗ "}
# Lower end of the chart's axis in percent: a budget overspent a hundred times would hide the rest
_LOWEST_PERCENT: Final = -100.0
_MAX_BARS: Final = 200.0
BURN_HELP: Final = (
    "How many times faster than allowed the error budget was used up: 1 uses it up exactly at the window's end. "
    "A pair alerts if both windows burn at least this fast: the long one shows that it matters, the short one that "
    "it continues (SRE Workbook, chapter 5)."
)


def draw_slos(visit: Visit) -> None:
    """Draw the current state of objectives, independent of the selected range."""
    st.markdown("### SLOs")
    promised = visit.read_control(objective_list, visit.scope.tenant)
    if not promised.objectives:
        with panel("Objectives"):
            st.markdown(
                "No objectives. Create one "
                + ("below, or " if may_create(visit) else "")
                + "with `tollkeeper slos create chat-ttft --indicator ttft --target 99 --ttft-ms 500`; past requests "
                "count too."
            )
        if may_create(visit):
            draw_slo_form(visit)
        return
    found = visit.read_slow(objective_states, promised, QueryTime(visit.now), keep_seconds=_KEPT_SECONDS)
    if isinstance(found, Pending):
        note("Objectives are being evaluated …")
        return
    _standing_table(found)
    _burn_table(found)
    with contained():
        _history(visit, promised, found)
    if may_create(visit):
        draw_slo_form(visit)


def _standing_table(found: Sequence[ObjectiveState]) -> None:
    frame = objectives_frame(found)
    number = st.column_config.NumberColumn
    show_table(
        "Objectives",
        frame,
        key="slo_standings",
        help="State of each objective over its own window, until now. Same figures as `tollkeeper slos report`.",
        columns={
            "Status": st.column_config.TextColumn(
                help="missed: the error budget is used up. burning: it is being used up fast enough to alert."
            ),
            "Target": number("Target %", format="%.5g", help="Percentage of requests that should be good"),
            "Good": number("Good %", format="%.4g", help="Percentage of requests that were good in the window"),
            "Budget left": st.column_config.ProgressColumn(
                "Budget left %",
                format="%.1f",
                min_value=0,
                max_value=100,
                help="Remaining share of the allowed bad requests; below 0: overspent",
            ),
            "Allowed": number("Bad allowed", format="%.1f", help="Bad requests that the target allows so far"),
            "Bad": number("Bad so far", format="localized", help="Bad requests in the window"),
            "Requests": number(format="localized", help="Requests that count, in the window"),
            "Window": st.column_config.TextColumn(help="Days that the budget covers"),
        },
    )


def objectives_frame(found: Sequence[ObjectiveState]) -> Table:
    """Return a row per objective. Shares are percentages; `None` without requests."""
    rows = []
    for standing in found:
        shown: dict[str, Any] = standing.as_json()
        rows.append(
            {
                "Objective": standing.objective.id,
                "Status": _SIGNS.get(standing.status, "") + STATUS_WORDS[standing.status],
                "SLO": slo_text(standing.objective),
                "About": about_text(standing.objective),
                "Target": float(standing.objective.target_percent),
                "Good": shown["good_percent"],
                "Budget left": shown["budget_remaining_percent"],
                "Allowed": shown["budget_requests"],
                "Bad": shown["bad_requests"],
                "Requests": shown["requests"],
                "Window": f"{standing.objective.window_days} d",
            }
        )
    return Table(rows)


def _burn_table(found: Sequence[ObjectiveState]) -> None:
    frame = burn_frame(found)
    columns: dict[str, Any] = {
        name: st.column_config.NumberColumn(name, format="%.3g", help=BURN_HELP)
        for name in frame.columns
        if name not in ("Objective", "Alerts")
    }
    columns["Alerts"] = st.column_config.TextColumn(help="Burn-rate windows that are exceeded now, most urgent first")
    show_table("Burn rates", frame, key="slo_burns", columns=columns, help=BURN_HELP)


def burn_frame(found: Sequence[ObjectiveState]) -> Table:
    """Return a row per objective and a column per window of each pair: burn rate, `None` without requests."""
    rows = []
    for standing in found:
        row: dict[str, object] = {"Objective": standing.objective.id}
        row["Alerts"] = ", ".join(pair.name for pair in standing.burning) or "none"
        for pair in BURN_PAIRS:
            for window in (pair.long, pair.short):
                rate = standing.counts[window].burn_rate(standing.objective)
                row[f"{_spoken(window.total_seconds())} ({float(pair.factor):g}×)"] = (
                    None if rate is None else float(rate)
                )
        rows.append(row)
    return Table(rows)


def _history(visit: Visit, promised: ObjectiveList, found: Sequence[ObjectiveState]) -> None:
    names = [standing.objective.id for standing in found]
    worst = min(found, key=lambda each: _remaining(each)).objective.id
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown("### Error budget over time", width="content")
        chosen = select("objective", "Objective", names, default=worst, width=260)
    history = visit.read_slow(budget_history, promised, chosen, QueryTime(visit.now), keep_seconds=60)
    if isinstance(history, Pending):
        note("The error budget's history is loading …")
        return
    steps = [point.at for point in history.points]
    left = [None if point.remaining_share is None else point.remaining_share * 100 for point in history.points]
    drawn = [Line("Budget left", left, STATUS["good"] if (left[-1] or 0) > 0 else STATUS["bad"])]
    figure = lines(steps, drawn, visit.formats.zone, suffix=" %")
    known = [value for value in left if value is not None]
    figure.update_yaxes(rangemode="normal", range=[max(min([0.0, *known]), _LOWEST_PERCENT) - 2, 104])
    figure.add_hline(y=0, line={"color": STATUS["bad"], "width": 1, "dash": "dot"})
    show_chart(
        f"Error budget of {chosen}",
        figure,
        key="slo_history",
        unit="% left",
        help="Remaining share of the allowed bad requests at the end of each day of the window. The axis ends at "
        f"{_LOWEST_PERCENT:g} %, when twice as many were bad; the data has all values.",
        data=lambda: line_frame(steps, drawn),
    )


def slo_text(objective: Objective) -> str:
    """Return an objective's condition for a good request, such as "first token in 500 ms"."""
    times = {"ttft": "first token", "inter_token": "token", "end_to_end": "answer"}
    limits = [f"{times[name]} in {format(value, 'f')} ms" for name, value in objective.thresholds_ms.items()]
    if objective.indicator == "availability":
        return "answered"
    return ("answered, " if objective.indicator == "goodput" else "") + ", ".join(limits)


def about_text(objective: Objective) -> str:
    """Return which requests an objective covers, such as "tenant acme, model small"."""
    named = (
        ("tenant", objective.tenant),
        ("model", objective.model),
        ("route", objective.route),
        ("prompts", objective.prompt_class),
    )
    return ", ".join(f"{kind} {name}" for kind, name in named if name) or "everything"


def _remaining(standing: ObjectiveState) -> float:
    left = standing.budget.remaining_share
    return _MAX_BARS if left is None else float(left)


def _spoken(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds % size == 0:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
