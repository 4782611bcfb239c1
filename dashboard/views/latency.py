"""The latency page: latency over time and by prompt length, and SLOs."""

from typing import Any, Final, cast

import streamlit as st

from analytics.latency.histogram import Histogram
from analytics.latency.over_time import LatencyOverTime, latency_over_time
from contracts.errors import InvalidRequest
from contracts.rules.objectives import PROMPT_CLASS_BELOW_TOKENS, PromptClass, Timed
from dashboard import states
from dashboard.address import page_link
from dashboard.controls import segmented
from dashboard.page import Page
from dashboard.panels import Figure, contained, note, panel, show_chart, show_figures, show_table
from dashboard.slow_answers import Pending
from dashboard.table import Table
from dashboard.views.latency_charts import MAP_HEIGHT, heat_map, heat_map_frame, percentile_lines, prompt_ranges
from dashboard.views.overview_read import COUNTED, TOGETHER_HELP, WAITING, read_overview, together
from dashboard.views.slos import draw_slos
from dashboard.views.time_charts import line_frame, lines
from dashboard.visit import Visit

MEASURES: Final[dict[Timed, tuple[str, str]]] = {
    "ttft": ("First token", "From a request's arrival at the gateway to the first token passing it."),
    "inter_token": (
        "Inter-token latency",
        "Time between two tokens of an answer: each request's own 95th percentile, so each request counts once.",
    ),
    "end_to_end": ("End to end", "From a request's arrival to the end of its answer, for complete answers."),
}
_COUNTED: Final = (
    "Counted as for SLOs: without refusals and caller errors. Percentiles come from histogram "
    "buckets 20 to 33 % wide, so they are accurate to their bucket."
)
_NS_PER_MS: Final = 1e6
_LONG_SECONDS: Final = 60
# Columns of the table by prompt length: title, measure, quantile.
_PROMPT_COLUMNS: Final[tuple[tuple[str, Timed, float], ...]] = (
    ("TTFT p50", "ttft", 0.5),
    ("TTFT p95", "ttft", 0.95),
    ("TTFT p99", "ttft", 0.99),
    ("Inter-token p50", "inter_token", 0.5),
    ("Inter-token p95", "inter_token", 0.95),
    ("End to end p50", "end_to_end", 0.5),
    ("End to end p95", "end_to_end", 0.95),
)


def draw(visit: Visit) -> None:
    """Draw latency, then SLOs; only SLOs if there is no latency data."""
    covered = visit.scope.covered
    note(f"{visit.formats.period(covered.start, covered.end)}, in whole {visit.scope.grain}s")
    try:
        _times(visit)
    except InvalidRequest as error:  # such as a range beyond the retention; SLOs have their own windows
        states.show_invalid(error)
    with contained():
        draw_slos(visit)


def _times(visit: Visit) -> None:
    found = _read(visit)
    if isinstance(found, Pending):
        note("Loading …")
    elif found.is_empty:
        _nothing(visit)
    else:
        _figures(visit, found)
        _over_time(visit, found)
        _by_prompt(visit, found)


def _read(visit: Visit) -> LatencyOverTime | Pending:
    """Read the histograms; in the background for months of one tenant and for teams, which no rollup has."""
    scope = visit.scope
    is_of_all = scope.tenant is None and scope.team is None and scope.model is None
    if scope.grain == "minute" or is_of_all or (scope.grain == "hour" and scope.team is None):
        return visit.read(latency_over_time, scope)
    return visit.read_slow(latency_over_time, scope.settled, keep_seconds=_LONG_SECONDS)


def _nothing(visit: Visit) -> None:
    if not visit.seen("tenant"):
        states.show_first_steps()
        return
    with panel("No latency data"):
        st.markdown("No latency data for these filters in this range.")
        note("Widen the time range or remove filters. Refused and unanswered requests are on the page Requests.")


def _figures(visit: Visit, found: LatencyOverTime) -> None:
    duration = visit.formats.duration
    speed = read_overview(visit)
    how = "exact" if speed.method == "exact" else "from sketches (accurate to 1 %)"
    ttft, gap, whole = speed.latency.ttft, speed.latency.gap, found.whole("end_to_end")
    unknown, none = (None, "no data") if speed.has_latency else (WAITING, COUNTED)
    show_figures(
        [
            Figure(
                "TTFT p95",
                unknown or duration(ttft.p95_ns if ttft else None),
                f"p50 {duration(ttft.p50_ns)}, p99 {duration(ttft.p99_ns)}" if ttft else none,
                f"Time from arrival to first token over all requests that had one; {how}. Same as on Overview.",
            ),
            Figure(
                "Inter-token p95",
                unknown or duration(gap.p95_ns if gap else None),
                f"{together(gap.p50_ns)}p50 {duration(gap.p50_ns)}, p99 {duration(gap.p99_ns)}" if gap else none,
                f"Time between two tokens, over all tokens of all answers; {how}. {TOGETHER_HELP}",
            ),
            Figure(
                "End to end p95",
                duration(whole.quantile_ns(0.95)),
                f"p50 {duration(whole.quantile_ns(0.5))}, p99 {duration(whole.quantile_ns(0.99))}",
                f"{MEASURES['end_to_end'][1]} {_COUNTED}",
            ),
            Figure(
                "Requests timed",
                visit.formats.count(found.whole("ttft").total),
                f"{visit.formats.count(whole.total)} answered completely",
                "Requests with a first token, and those with a complete answer.",
            ),
        ]
    )


def _over_time(visit: Visit, found: LatencyOverTime) -> None:
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown("### Over time", width="content")
        chosen = cast(
            Timed,
            segmented(
                "time", "Time", tuple(MEASURES), default="ttft", format_func=lambda name: MEASURES[cast(Timed, name)][0]
            ),
        )
    title, said = MEASURES[chosen]
    histograms = found.over_time[chosen]
    if not any(each.counts for each in histograms):
        with panel(title, help=said):
            note("Not measured in this range: only streamed answers have the times of single tokens.")
        return
    left, right = st.columns([3, 2], gap="small")
    with left:
        show_chart(
            f"{title}: distribution over time",
            heat_map(found.steps, histograms, visit.formats),
            key="latency_heat",
            unit="requests",
            help=f"{said} {_COUNTED} Darker: more requests. The lines are the 50th, 95th and 99th percentile.",
            data=lambda: heat_map_frame(found.steps, histograms),
        )
    drawn = percentile_lines(histograms, visit.formats)
    with right:
        show_chart(
            f"{title}: percentiles",
            lines(found.steps, drawn, visit.formats.zone, suffix=" ms", height=MAP_HEIGHT),
            key="latency_lines",
            unit="ms",
            help=f"{said} {_COUNTED}",
            data=lambda: line_frame(found.steps, drawn),
        )
    sort = "duration" if chosen == "end_to_end" else "ttft"
    page_link("requests", "List the slowest requests", {"sort": sort}, icon=":material/manage_search:")


def _by_prompt(visit: Visit, found: LatencyOverTime) -> None:
    st.markdown("### By prompt length")
    left, right = st.columns([2, 1], gap="small")
    frame = prompt_frame(found)
    with left:
        show_table(
            "Percentiles by prompt length, in ms",
            frame,
            key="latency_by_prompt",
            columns=_prompt_columns(),
            help=f"In milliseconds. Prompts by their tokens, cached ones included. {_COUNTED}",
        )
    ranges = {prompt_name(prompt): times["ttft"] for prompt, times in found.by_prompt.items() if times["ttft"].counts}
    with right:
        if ranges:
            show_chart(
                "First token by prompt length",
                prompt_ranges(ranges, visit.formats),
                key="latency_prompt_ranges",
                unit="ms, p50 to p99",
                help="Green the 50th percentile, orange the 95th, red the 99th, on a logarithmic scale.",
                data=lambda: frame,
            )


def prompt_name(prompt: PromptClass) -> str:
    """Return a prompt class's name by its bounds in tokens, such as "8,192 and more"."""
    below = PROMPT_CLASS_BELOW_TOKENS
    names: dict[PromptClass, str] = {
        "short": f"below {below['short']:,}",
        "medium": f"below {below['medium']:,}",
        "long": f"below {below['long']:,}",
        "very_long": f"{below['long']:,} and more",
        "unknown": "not reported",
    }
    return names[prompt]


def prompt_frame(found: LatencyOverTime) -> Table:
    """Return a row per prompt class, times in milliseconds; `None` if nothing was measured."""
    rows: list[dict[str, object]] = []
    for prompt, times in found.by_prompt.items():
        requests = _most(times["ttft"], times["end_to_end"])
        row: dict[str, object] = {"Prompt tokens": prompt_name(prompt), "Requests": requests}
        for title, measure, level in _PROMPT_COLUMNS:
            row[title] = _milliseconds(times[measure].quantile_ns(level))
        rows.append(row)
    return Table(rows)


def _prompt_columns() -> dict[str, Any]:
    number = st.column_config.NumberColumn
    columns: dict[str, Any] = {"Requests": number(format="localized", help="Requests with a measurement")}
    for title, measure, _ in _PROMPT_COLUMNS:
        columns[title] = number(title, format="%.3g", help=MEASURES[measure][1])
    return columns


def _most(*histograms: Histogram) -> int:
    return max(each.total for each in histograms)


def _milliseconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / _NS_PER_MS


LATENCY = Page(
    "Latency & SLO",
    "latency",
    ":material/speed:",
    draw,
    filters=("range", "tenant", "team", "model"),
    about="Latency over time and by prompt length, and SLOs.",
)
