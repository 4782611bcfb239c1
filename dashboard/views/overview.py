"""The overview page: requests, tokens, cost and latency, over time and by tenant and model."""

from collections.abc import Mapping
from typing import Final

import streamlit as st

from analytics.overview import Overview
from analytics.series import Dimension, Series, series
from dashboard import charts, formats, states
from dashboard.controls import segmented
from dashboard.page import Page
from dashboard.panels import Figure, show_chart, show_figures
from dashboard.views.costs_breakdown import series_frame
from dashboard.views.overview_budgets import draw_budget_bars
from dashboard.views.overview_now import draw_now
from dashboard.views.overview_read import COUNTED, TOGETHER_HELP, WAITING, read_overview, together
from dashboard.views.overview_table import show_table
from dashboard.visit import Visit


def draw(visit: Visit) -> None:
    """Draw the current figures, budgets, charts and table, or why there are no data."""
    visit.ahead(series, visit.scope, visit.filters.by)
    answer = read_overview(visit)
    if answer.is_empty:
        _nothing(visit, answer)
        return
    _caption(answer, visit)
    draw_now(visit, answer)
    _key_figures(visit, answer)
    over_time = visit.read(series, visit.scope, visit.filters.by)
    _charts(visit, answer, over_time, visit.colors(visit.filters.by))
    draw_budget_bars(visit)
    show_table(visit, answer)


def _nothing(visit: Visit, answer: Overview) -> None:
    filters = visit.filters
    if not visit.seen("tenant"):
        states.show_first_steps()
        return
    kind: Dimension = "model" if filters.model else "tenant"
    value = filters.model or filters.tenant
    times = [one.last_seen for one in visit.seen(kind) if value in (None, one.value)]
    earlier = [time for time in times if time < answer.covered.start]
    covered = visit.formats.period(answer.covered.start, answer.covered.end)
    states.show_nothing_found(filters, covered, visit.formats.moment(max(earlier)) if earlier else None)


def _caption(answer: Overview, visit: Visit) -> None:
    covered, refresh = visit.formats.period(answer.covered.start, answer.covered.end), visit.refresh_seconds
    rhythm = f"refreshes every {formats.counted(refresh, 'second')}" if refresh else "a fixed range"
    st.caption(f"{covered}, in whole {answer.scope.grain}s; {rhythm}")


def _copies(count: int) -> str:
    """Return a sentence about shadow requests; empty if there are none."""
    if not count:
        return ""
    said = "shadow requests of rollouts: included in tokens and cost, excluded from errors and latency."
    return f" {formats.count(count)} {said}"


def _key_figures(visit: Visit, answer: Overview) -> None:
    formats = visit.formats
    total, speed = answer.total, answer.latency
    how, error = ("exact", "") if answer.method == "exact" else ("from a sketch (accurate to 1 %)", " ±1 %")
    ttft, gap = speed.ttft, speed.gap
    unknown, none = (None, "no data") if answer.has_latency else (WAITING, COUNTED)
    show_figures(
        [
            Figure(
                "Requests",
                formats.count(total.requests),
                f"{formats.count(total.rejected)} refused, {formats.count(total.cancelled)} cancelled",
                "All recorded requests: answered, failed, refused by a limit or rule, and cancelled by the client."
                + _copies(total.copies),
            ),
            Figure(
                "Error rate",
                formats.percent(total.error_rate),
                f"{formats.count(total.seen_errors)} of {formats.count(total.seen)} failed",
                "Requests that failed, over all admitted requests (refused and shadow requests are excluded).",
            ),
            Figure(
                "Input tokens",
                formats.count(total.input_tokens),
                _cached(total.cached_share),
                "All prompt tokens, cached ones included, of the requests whose usage is known.",
            ),
            Figure(
                "Output tokens",
                formats.count(total.output_tokens),
                f"{formats.count(total.unknown_usage_requests)} not reported"
                if total.unknown_usage_requests
                else "all reported",
                "All generated tokens, reasoning included, of the requests whose usage is known.",
            ),
            Figure(
                "Cost",
                formats.money(total.cost_usd),
                f"{formats.count(total.unpriced_requests)} without a price"
                if total.unpriced_requests
                else "all priced",
                "Sum of every request's cost at its price when it ran. Requests without a price or "
                "with unknown usage are not included; failed ones are free.",
            ),
            Figure(
                "TTFT p50",
                unknown or formats.duration(ttft.p50_ns if ttft else None),
                f"p95 {formats.duration(ttft.p95_ns)}{error}" if ttft else none,
                f"Time from a request's arrival to its first token, median; {how}.",
            ),
            Figure(
                "Inter-token p50",
                unknown or formats.duration(gap.p50_ns if gap else None),
                f"{together(gap.p50_ns)}p95 {formats.duration(gap.p95_ns)}{error}" if gap else none,
                f"Inter-token latency: time between two tokens of one answer, median; {how}. {TOGETHER_HELP}",
            ),
        ]
    )


def _cached(share: float | None) -> str:
    return "" if share is None else f"{formats.percent(share)} cached"


_MEANINGS: Final = {
    charts.REQUESTS.title: "All requests recorded, refused ones included.",
    charts.TOKENS.title: "Input and output tokens of the requests whose usage is known; cached input included.",
}
_COST_MEANS: Final = "Sums of priced requests, each at its price when it ran."


def _charts(visit: Visit, answer: Overview, over_time: Series, colors: Mapping[str, str]) -> None:
    step = charts.step_name(over_time.step)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.html(charts.legend(over_time, colors))
        segmented("by", "Group by", ("tenant", "model"), default="tenant", format_func=lambda name: f"By {name}")
    columns = st.columns(3, gap="small")
    cost = charts.cost_in(visit.formats)
    for column, measure in zip(columns, (charts.REQUESTS, charts.TOKENS, cost), strict=True):
        with column:
            show_chart(
                measure.title,
                charts.bars(over_time, measure, colors, visit.formats.zone),
                key=f"chart_{measure.title}",
                unit=f"per {step}",
                help=_COST_MEANS if measure is cost else _MEANINGS[measure.title],
                data=lambda: series_frame(over_time),
                alt=f"{measure.title} per {step} by {visit.filters.by}",
            )
    notes = []
    if over_time.partial:
        notes.append("Pale bars are incomplete: still filling, or cut by the range.")
    without_price = answer.total.unpriced_requests + answer.total.unknown_usage_requests
    if without_price:
        unpriced = formats.counted(without_price, "request")
        notes.append(f"The cost of {unpriced} is unknown and not in the chart.")
    if notes:
        st.caption(" ".join(notes))


OVERVIEW = Page(
    "Overview",
    "overview",
    ":material/monitoring:",
    draw,
    about="Requests, tokens, cost and latency over time, by tenant and model.",
)
