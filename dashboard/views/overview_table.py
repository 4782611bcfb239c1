"""The overview's table: one row per tenant and model."""

from typing import Any

import streamlit as st

from analytics.overview import MAX_LINES, Line, Overview
from dashboard import formats
from dashboard.charts import group_name
from dashboard.money_column import Money, in_currency
from dashboard.table import Table
from dashboard.visit import Visit

_VISIBLE_ROWS = 12
_SCROLLED_PIXELS = 400
# Significant digits, so that 10 µs is shown as 0.01; the browser's %g writes no exponent up to 1e21.
_THREE_DIGITS = "%.3g"


def show_table(visit: Visit, answer: Overview) -> None:
    """Draw the table, and a note on how percentiles were computed and which rows are omitted."""
    st.markdown("### By tenant and model")
    frame = table_frame(answer)
    shown, columns = in_currency(frame, _columns(frame), visit.formats)
    st.dataframe(
        shown.as_arrow(),
        key="overview_table",
        hide_index=True,
        lazy=False,
        height="content" if len(frame) <= _VISIBLE_ROWS else _SCROLLED_PIXELS,
        placeholder=formats.UNKNOWN,
        column_config=columns,
        alt="Requests, tokens, cost and latency percentiles by tenant and model",
    )
    st.caption(_footnote(answer))


def table_frame(answer: Overview) -> Table:
    """Return the table's rows. Unknown values are missing; times are in milliseconds, cost in USD."""
    frame = Table([_cells(line) for line in answer.lines])
    for name in ("No price", "Usage unknown"):  # columns only if any value differs from 0
        if not any(frame[name]):
            frame = frame.without(name)
    return frame


def _cells(line: Line) -> dict[str, object]:
    volume, ttft, gap = line.volume, line.latency.ttft, line.latency.gap
    rate = volume.error_rate
    return {
        "Tenant": group_name(line.tenant),
        "Model": group_name(line.model),
        "Requests": volume.requests,
        "Errors": None if rate is None else rate * 100,
        "Input": volume.input_tokens,
        "Cached": volume.cached_input_tokens,
        "Output": volume.output_tokens,
        "Cost": None if volume.cost_usd is None else float(volume.cost_usd),
        "No price": volume.unpriced_requests,
        "Usage unknown": volume.unknown_usage_requests,
        "TTFT p50": _milliseconds(ttft.p50_ns if ttft else None),
        "TTFT p95": _milliseconds(ttft.p95_ns if ttft else None),
        "TTFT p99": _milliseconds(ttft.p99_ns if ttft else None),
        "Inter-token p50": _milliseconds(gap.p50_ns if gap else None),
        "Inter-token p95": _milliseconds(gap.p95_ns if gap else None),
        "Inter-token p99": _milliseconds(gap.p99_ns if gap else None),
    }


def _milliseconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6


def _columns(frame: Table) -> dict[str, Any]:
    number = st.column_config.NumberColumn
    columns: dict[str, Any] = {
        "Tenant": st.column_config.TextColumn(width="small"),
        "Model": st.column_config.TextColumn(width="medium"),
        "Requests": number(format="localized", help="All requests, including refused ones"),
        "Errors": number("Errors %", format="%.1f", help="Failed requests as a percentage of admitted requests"),
        "Input": number(format="localized", help="Prompt tokens, cached ones included"),
        "Cached": number(format="localized", help="Prompt tokens read from a cache"),
        "Output": number(format="localized", help="Generated tokens, reasoning included"),
        "Cost": Money(_cost_places(frame), "Excludes unpriced requests"),
        "No price": number(format="localized", help="Requests with known usage and no valid price card"),
        "Usage unknown": number(format="localized", help="Requests whose tokens were not reported"),
    }
    for name, meaning in (("TTFT", "Time to first token"), ("Inter-token", "Inter-token latency")):
        for level in ("p50", "p95", "p99"):
            title = f"{name} {level}"
            columns[title] = number(f"{title} ms", format=_THREE_DIGITS, help=f"{meaning}, {level}, in milliseconds")
    return columns


def _cost_places(frame: Table) -> int:
    largest = max((cost for cost in frame["Cost"] if cost is not None), default=0.0)
    return 2 if largest >= 1_000 else 4 if largest >= 1 else 6


def _footnote(answer: Overview) -> str:
    if not answer.has_latency:
        how = "Percentiles are loading."
    elif answer.method == "exact":
        how = "Percentiles are exact: each is the measured time at its rank among all of the range."
    else:
        how = "Percentiles come from sketches, accurate to 1 %: there are over 5 million gaps between tokens."
    cut = (
        f" Only the {MAX_LINES} most expensive rows are shown; choose a tenant to see more."
        if answer.has_more_lines
        else ""
    )
    return f"{how} — means not measured, not reported or not priced, never zero.{cut}"
