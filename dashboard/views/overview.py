"""The overview page: what was asked, used and spent, how fast, over time and by tenant and model."""

from datetime import UTC, datetime

import streamlit as st

from analytics.overview import Overview
from analytics.series import Dimension, Series
from contracts.errors import InvalidRequest, TollkeeperError
from dashboard import charts, formats, states
from dashboard.filters import Filters, filter_bar, group_toggle, read_filters
from dashboard.reader import read_choices, read_overview, read_series
from dashboard.views.overview_table import show_table

REFRESH_SECONDS = {"15m": 2, "1h": 2, "6h": 5, "24h": 10, "7d": 30, "30d": 60}

Offered = tuple[list[str], list[str]]  # tenants, models


def overview_page() -> None:
    """Draw the page: the filter bar once, the numbers again every few seconds while the range is live."""
    try:
        filters, problem = read_filters(st.query_params), None
    except InvalidRequest as error:
        filters, problem = Filters(), error
    offered = _offered()
    tenants, models = offered or ([], [])
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.html('<h1 style="margin:0;padding:0;font-size:1.5rem">Overview</h1>', width="content")
        with st.container(horizontal=True, vertical_alignment="center", width="content"):
            filter_bar(filters, tenants, models)
    if problem is not None:
        states.show_invalid(problem)
        return
    for kind, value, known in (("tenant", filters.tenant, tenants), ("model", filters.model, models)):
        if offered is not None and value is not None and value not in known:
            states.show_unknown(kind, value)
            return
    refresh = REFRESH_SECONDS.get(filters.range)
    st.fragment(_numbers, run_every=refresh)(refresh, offered)


def _offered() -> Offered | None:
    """List the tenants and models to choose from; `None` where the store cannot say, which the page says below."""
    try:
        return [seen.value for seen in read_choices("tenant")], [seen.value for seen in read_choices("model")]
    except TollkeeperError:
        return None


def _numbers(refresh: int | None, offered: Offered | None) -> None:
    """Draw all numbers of one moment, or why there are none. `offered` is what the bar above offers.

    The address is read here again: the choice of groups, within this fragment, changes it without a run of the page.
    """
    try:
        filters = read_filters(st.query_params)
        scope = filters.scope(datetime.now(UTC))
        answer = read_overview(scope)
        if _offered() != offered:
            st.rerun()  # the bar stands outside this fragment: it must learn of a new tenant or a store that is back
        if answer.is_empty:
            _nothing(filters, answer)
            return
        over_time = read_series(scope, filters.by)
        colors = charts.assign_colors(seen.value for seen in read_choices(filters.by))
    except InvalidRequest as error:
        states.show_invalid(error)
    except TollkeeperError as error:
        states.show_failure(error, refresh)
    else:
        _caption(answer, refresh)
        _key_figures(answer)
        _charts(filters, answer, over_time, colors)
        show_table(answer)


def _nothing(filters: Filters, answer: Overview) -> None:
    if not read_choices("tenant"):
        states.show_first_steps()
        return
    kind: Dimension = "model" if filters.model else "tenant"
    value = filters.model or filters.tenant
    times = [one.last_seen for one in read_choices(kind, filters.tenant) if value in (None, one.value)]
    earlier = [time for time in times if time < answer.covered.start]
    covered = formats.period(answer.covered.start, answer.covered.end)
    states.show_nothing_found(filters, covered, formats.moment(max(earlier)) if earlier else None)


def _caption(answer: Overview, refresh: int | None) -> None:
    covered = formats.period(answer.covered.start, answer.covered.end)
    rhythm = f"refreshes every {formats.counted(refresh, 'second')}" if refresh else "a fixed range"
    st.caption(f"{covered}, in whole {answer.scope.grain}s; {rhythm}")


def _key_figures(answer: Overview) -> None:
    total, speed = answer.total, answer.latency
    how, error = ("exact", "") if answer.method == "exact" else ("from a sketch, within 1 %", " ±1 %")
    ttft, gap = speed.ttft, speed.gap
    requests, errors, received, sent, cost, first, between = st.columns(7, gap="small")
    _figure(
        requests,
        "Requests",
        formats.count(total.requests),
        f"{formats.count(total.rejected)} refused, {formats.count(total.cancelled)} cancelled",
        "Every request recorded: answered, failed, refused by a limit or rule, and broken off by the client.",
    )
    _figure(
        errors,
        "Error rate",
        formats.percent(total.error_rate),
        f"{formats.count(total.errors)} of {formats.count(total.admitted)} failed",
        "Requests that failed, over all that were admitted (refused ones are not counted).",
    )
    _figure(
        received,
        "Input tokens",
        formats.count(total.input_tokens),
        _cached(total.cached_share),
        "All prompt tokens, cached ones included, of the requests whose usage is known.",
    )
    _figure(
        sent,
        "Output tokens",
        formats.count(total.output_tokens),
        f"{formats.count(total.unknown_usage_requests)} not reported"
        if total.unknown_usage_requests
        else "all reported",
        "All generated tokens, reasoning included, of the requests whose usage is known.",
    )
    _figure(
        cost,
        "Cost",
        formats.money(total.cost_usd),
        f"{formats.count(total.unpriced_requests)} unpriced" if total.unpriced_requests else "all priced",
        "Sum of every request's cost in USD at the price that held when it ran. Unpriced requests are left out.",
    )
    _figure(
        first,
        "TTFT p50",
        formats.duration(ttft.p50_ns if ttft else None),
        f"p95 {formats.duration(ttft.p95_ns)}{error}" if ttft else "none measured",
        f"Time from a request's arrival to its first token, as half of the requests had it or better; {how}.",
    )
    _figure(
        between,
        "Inter-token p50",
        formats.duration(gap.p50_ns if gap else None),
        f"p95 {formats.duration(gap.p95_ns)}{error}" if gap else "none measured",
        f"Time between two tokens of one answer, over every single gap; {how}.",
    )


def _figure(column, label: str, value: str, beside: str, definition: str) -> None:
    column.metric(label, value, beside or " ", delta_color="off", delta_arrow="off", border=True, help=definition)


def _cached(share: float | None) -> str:
    return "" if share is None else f"{formats.percent(share)} cached"


def _charts(filters: Filters, answer: Overview, over_time: Series, colors: dict[str, str]) -> None:
    step = charts.step_name(over_time.step)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.html(charts.legend(over_time, colors))
        group_toggle(filters)
    columns = st.columns(3, gap="small")
    for column, measure in zip(columns, (charts.REQUESTS, charts.TOKENS, charts.COST), strict=True):
        with column.container(border=True):
            st.markdown(f"**{measure.title}** per {step}")
            st.plotly_chart(
                charts.bars(over_time, measure, colors),
                key=f"chart_{measure.title}",
                config=charts.CHART_CONFIG,
                alt=f"{measure.title} per {step} by {filters.by}",
            )
    notes = []
    if over_time.partial:
        notes.append("Pale bars are still filling or begin before the range.")
    if answer.total.unpriced_requests:
        unpriced = formats.counted(answer.total.unpriced_requests, "request")
        notes.append(f"The cost of {unpriced} is unknown and not in the chart.")
    if notes:
        st.caption(" ".join(notes))
