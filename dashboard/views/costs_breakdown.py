"""Cost by one level (such as team): over time, and as a table whose rows open the next level."""

from functools import partial
from typing import Any, Final, cast

import streamlit as st

from analytics.cost.drill import CostBreakdown, CostLevel, CostPlace
from analytics.cost.sums import CostSum
from analytics.cost.unit_costs import unit_costs
from analytics.distinct import Kind
from analytics.series import AnyDimension, Series, series
from contracts.pricing.money import usd
from dashboard import address, charts
from dashboard.formats import as_float
from dashboard.money_column import Money
from dashboard.panels import contained, show_chart, show_table
from dashboard.table import Table
from dashboard.views.costs_words import KINDS, LEVEL_NAMES, label_of
from dashboard.visit import Visit

_MOST_ROWS: Final = 1_000  # rows of the table; the export has all


def draw_breakdown(visit: Visit, place: CostPlace, answer: CostBreakdown) -> None:
    """Draw the chart and the table of a place's breakdown; only the chart if there is no further level."""
    level = answer.level
    with contained():
        _over_time(visit, place, level)
    if level is None:
        return
    shown = answer.lines[:_MOST_ROWS]
    names = [name for name, _ in shown]
    key = "_".join(["costs", level, *(name for _, name in place.chosen)])
    lower = LEVEL_NAMES[level].lower()
    show_table(
        f"By {lower}",
        breakdown_frame(answer, shown),
        key=key,
        columns=_columns(level, answer),
        formats=visit.formats,
        help=f"Breakdown by {lower}; the rows sum to the total above. Select a row to open it.",
        data=lambda: export_frame(answer),
        on_select=partial(_open_row, key, level, names),
        empty="No requests in this range.",
    )
    if len(answer.lines) > len(shown):
        st.caption(f"The {_MOST_ROWS:,} most expensive of {len(answer.lines):,} are shown; the export has all.")
    st.caption(
        "Select a row to open it. — means unknown, not zero."
        + (" An empty name means that the requests have none." if any(not name for name in names) else "")
    )


def breakdown_frame(answer: CostBreakdown, lines: tuple[tuple[str, CostSum], ...]) -> Table:
    """Return the table of a breakdown, with rounded amounts and shares; the export has exact ones."""
    level = answer.level or "model"
    whole = answer.total.priced_pico_usd
    rows = []
    for name, sums in lines:
        each = unit_costs(sums)
        rows.append(
            {
                LEVEL_NAMES[level]: label_of(name),
                "Cost": as_float(sums.cost_usd),
                "Share": sums.priced_pico_usd / whole if whole else None,
                "Requests": sums.requests,
                "Input": sums.input_tokens,
                "Cached": sums.cached_input_tokens / sums.input_tokens if sums.input_tokens else None,
                "Output": sums.output_tokens,
                "Per request": as_float(each.per_request),
                "Per 1M tokens": as_float(each.per_mtok),
                "Recorded": float(usd(sums.recorded_pico_usd)),
                "Corrections": float(usd(sums.corrected_pico_usd)),
                "Estimated": float(usd(sums.estimated_pico_usd)),
                "No price": sums.unpriced_requests + sums.partly_unpriced_requests,
                "Usage unknown": sums.unknown_usage_requests,
                "Failed": sums.failed_requests,
            }
        )
    frame = Table(rows)
    if rows and not any(frame["Corrections"]):
        frame = frame.without("Recorded")
    for name in ("Corrections", "Estimated", "No price", "Usage unknown", "Failed") if rows else ():
        if not any(frame[name]):  # columns only if any value differs from 0
            frame = frame.without(name)
    return frame


def export_frame(answer: CostBreakdown) -> Table:
    """Return the whole breakdown for export, with exact amounts."""
    level = answer.level or "model"
    return Table(
        [
            {
                level: name,
                "cost_usd": sums.cost_usd,
                "recorded_usd": usd(sums.recorded_pico_usd),
                "corrections_usd": usd(sums.corrected_pico_usd),
                "charged_usd": usd(sums.charged_pico_usd),
                "requests": sums.requests,
                "rejected_requests": sums.rejected,
                "input_tokens": sums.input_tokens,
                "cached_input_tokens": sums.cached_input_tokens,
                "output_tokens": sums.output_tokens,
                "estimated_usd": usd(sums.estimated_pico_usd),
                "estimated_requests": sums.estimated_requests,
                "failed_requests": sums.failed_requests,
                "unpriced_requests": sums.unpriced_requests,
                "partly_unpriced_requests": sums.partly_unpriced_requests,
                "unpriced_tokens": sums.unpriced_tokens,
                "unknown_usage_requests": sums.unknown_usage_requests,
                "gpu_ns": sums.gpu_ns,
            }
            for name, sums in answer.lines
        ]
    )


def series_frame(over_time: Series) -> Table:
    """Return a chart's points for export: one row per step and group."""
    return Table(
        [
            {
                "from": step,
                over_time.dimension: charts.group_name(group),
                "requests": point.requests,
                "input_tokens": point.input_tokens,
                "output_tokens": point.output_tokens,
                "cost_usd": point.cost_usd,
                "unpriced_requests": point.unpriced,
                "unknown_usage_requests": point.unknown_usage,
                "failed_requests": point.failed,
            }
            for group in charts.ordered_groups(over_time)
            for step, point in zip(over_time.steps, over_time.groups[group], strict=True)
        ]
    )


def dimension_of(place: CostPlace, level: CostLevel | None) -> AnyDimension | None:
    """Return the dimension that a chart over time is grouped by; `None` if rollups do not have this place's data."""
    if not place.is_in_sums:
        return None
    wanted = level if level in KINDS else "model"
    return cast(AnyDimension, wanted)


def _over_time(visit: Visit, place: CostPlace, level: CostLevel | None) -> None:
    dimension = dimension_of(place, level)
    if dimension is None:
        st.caption("No chart over time: hourly totals exist for tenants, teams, projects and models only.")
        return
    over_time = visit.read(series, visit.scope, dimension)
    colors = visit.colors(cast(Kind, dimension))
    step = charts.step_name(over_time.step)
    with st.container(border=False):
        st.html(charts.legend(over_time, colors))
    show_chart(
        "Cost",
        charts.bars(over_time, charts.cost_in(visit.formats), colors, visit.formats.zone),
        key="costs_over_time",
        unit=f"{visit.formats.currency} per {step}, by {dimension}",
        help="Sums of priced requests. The eight most expensive have a colour; others are grey. Pale bars are "
        "incomplete: still filling, or cut by the range.",
        data=lambda: series_frame(over_time),
    )


def _columns(level: CostLevel, answer: CostBreakdown) -> dict[str, Any]:
    number = st.column_config.NumberColumn
    largest = max((sums.priced_pico_usd for _, sums in answer.lines), default=0)
    places = 2 if largest >= 10**15 else 4 if largest >= 10**12 else 6
    return {
        LEVEL_NAMES[level]: st.column_config.TextColumn(width="medium"),
        "Cost": Money(places, "Cost of priced requests"),
        "Share": st.column_config.ProgressColumn(
            format="percent", min_value=0, max_value=1, help="Of the cost of all rows", width="small"
        ),
        "Requests": number(format="localized", help="All requests, including refused ones"),
        "Input": number(format="compact", help="Prompt tokens, cached ones included"),
        "Cached": number(format="percent", help="Share of the input that was read from a cache"),
        "Output": number(format="compact", help="Generated tokens, reasoning included"),
        "Per request": Money(6, "Mean over requests that have a price"),
        "Per 1M tokens": Money(4, "Over input and output together"),
        "Recorded": Money(places, "As recorded when the requests ran"),
        "Corrections": Money(places, "Corrections booked since; see Accounting"),
        "Estimated": Money(4, "Part of the cost that is based on estimated token counts"),
        "No price": number(format="localized", help="Usage known, no price card: not included in any cost"),
        "Usage unknown": number(format="localized", help="Usage unknown: not included in any cost"),
        "Failed": number(format="localized", help="Failed requests, which cost nothing"),
    }


def _open_row(key: str, level: CostLevel, names: list[str]) -> None:
    rows = st.session_state[key].selection.rows
    if not rows or rows[0] >= len(names):
        return
    name = names[rows[0]]
    if name:
        address.change({level: name, "level": None})
    else:
        st.toast(f"These requests state no {LEVEL_NAMES[level].lower()}: no further breakdown.")
