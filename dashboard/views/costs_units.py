"""Unit costs: cost per request and per million tokens, over time and by level."""

from typing import Any, cast

import streamlit as st

from analytics.cost.drill import CostBreakdown, CostPlace
from analytics.cost.unit_costs import unit_cost_over_time, unit_costs
from analytics.distinct import Kind
from analytics.series import Point, series
from dashboard import charts
from dashboard.formats import as_float
from dashboard.money_column import Money
from dashboard.panels import contained, note, show_chart, show_table
from dashboard.plot import Plot
from dashboard.table import Table
from dashboard.views.costs_breakdown import dimension_of
from dashboard.views.costs_words import LEVEL_NAMES, label_of
from dashboard.visit import Visit


def draw_unit_costs(visit: Visit, place: CostPlace, answer: CostBreakdown) -> None:
    """Draw the cost per million tokens over time, and a table of all unit costs."""
    with contained():
        _over_time(visit, place, answer)
    level = answer.level
    if level is None:
        return
    rows = []
    for name, sums in answer.lines[:1_000]:
        each = unit_costs(sums)
        rows.append(
            {
                LEVEL_NAMES[level]: label_of(name),
                "Per request": as_float(each.per_request),
                "Per 1k tokens": as_float(each.per_1k_tokens),
                "Per 1M tokens": as_float(each.per_mtok),
                "Per 1M output tokens": as_float(each.per_output_mtok),
                "Tokens per request": round((sums.input_tokens + sums.output_tokens) / sums.admitted)
                if sums.admitted
                else None,
                "Requests": sums.requests,
                "Without a price": sums.unpriced_requests + sums.unknown_usage_requests,
            }
        )
    show_table(
        f"Unit costs by {LEVEL_NAMES[level].lower()}",
        Table(rows),
        key="costs_units",
        columns=_columns(),
        formats=visit.formats,
        help="Cost of priced requests, per unit. A dash if there are none, or if it is unknown which tokens have a "
        "price.",
        data=lambda: _export(answer),
        empty="No requests in this range.",
    )


def _over_time(visit: Visit, place: CostPlace, answer: CostBreakdown) -> None:
    dimension = dimension_of(place, answer.level)
    if dimension is None:
        return
    over_time = visit.read(series, visit.scope, dimension)
    points = unit_cost_over_time(over_time)
    colors = visit.colors(cast(Kind, dimension))
    figure = Plot()
    for group in charts.ordered_groups(over_time):
        values = points[group]
        figure.add_scatter(
            name=charts.group_name(group),
            x=charts.local_times(over_time.steps, visit.formats.zone),
            y=[visit.formats.amount(value) for value in values],
            customdata=[
                visit.formats.money(value) + _without_price(visit, point)
                for value, point in zip(values, over_time.groups[group], strict=True)
            ],
            hovertemplate="%{customdata}",
            mode="lines+markers",
            marker={"size": 4, "color": charts.color_of(group, colors)},
            line={"width": 2, "color": charts.color_of(group, colors)},
            connectgaps=False,
        )
    step = charts.step_name(over_time.step)
    st.html(charts.legend(over_time, colors))
    show_chart(
        "Per 1M tokens",
        charts.style(figure, prefix=visit.formats.money_signs[0], suffix=visit.formats.money_signs[1]),
        key="costs_units_over_time",
        unit=f"{visit.formats.currency} per {step}, by {dimension}",
        help="Cost of the requests that have a price, over their input and output tokens together. A point's "
        "label shows how many others have none. A gap means no priced usage.",
        data=lambda: Table(
            [
                {
                    "from": step_start,
                    dimension: charts.group_name(group),
                    "usd_per_mtok": value,
                    "requests_without_price": point.without_price,
                }
                for group, values in points.items()
                for step_start, value, point in zip(over_time.steps, values, over_time.groups[group], strict=True)
            ]
        ),
    )
    without_price = sum(point.without_price for values in over_time.groups.values() for point in values)
    if without_price:
        count = visit.formats.counted(without_price, "request")
        note(f"{count} without a price (no price card, or usage unknown) not in the chart.")


def _without_price(visit: Visit, point: Point) -> str:
    return f" ({visit.formats.count(point.without_price)} without a price)" if point.without_price else ""


def _export(answer: CostBreakdown) -> Table:
    level = answer.level or "model"
    rows = []
    for name, sums in answer.lines:
        each = unit_costs(sums)
        rows.append(
            {
                level: name,
                "usd_per_request": each.per_request,
                "usd_per_1k_tokens": each.per_1k_tokens,
                "usd_per_mtok": each.per_mtok,
                "usd_per_output_mtok": each.per_output_mtok,
                "requests": sums.requests,
                "requests_without_price": sums.unpriced_requests + sums.unknown_usage_requests,
            }
        )
    return Table(rows)


def _columns() -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "Per request": Money(6, "Mean over requests that have a price"),
        "Per 1k tokens": Money(6, "Over input and output together"),
        "Per 1M tokens": Money(4, "Over input and output together"),
        "Per 1M output tokens": Money(4, "The whole cost over the output tokens that have a price"),
        "Tokens per request": number(
            format="localized", help="Input and output; mean over requests that were not refused"
        ),
        "Requests": number(format="localized", help="All requests, including refused ones"),
        "Without a price": number(format="localized", help="No price card, or usage unknown: not in the means"),
    }
