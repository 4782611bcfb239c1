"""The charts of one request: its waterfall, the time before each token, causes of the slow ones, its alternatives."""

from itertools import pairwise
from typing import Final

from analytics.explorer.decision import RouteDecision
from analytics.explorer.single_request import SingleRequest
from analytics.explorer.slowest import SlowTokens
from analytics.explorer.waterfall import Stage, Waterfall
from dashboard import charts
from dashboard.formats import Formats
from dashboard.plot import Plot
from dashboard.table import Table
from dashboard.theme import REST_COLOR, STATUS

_NS_PER_MS: Final = 1e6
_ROW_PIXELS: Final = 26
_MAX_STEPS: Final = 2_000  # maximum number of bars; more steps are drawn as one bar from the first to the last
# Stages in order of time: name and colour.
STAGES: Final[dict[Stage, tuple[str, str]]] = {
    "admission": ("Admission", "#7065d8"),
    "gateway_queue": ("Gateway queue", "#c2921a"),
    "cold_start": ("Cold start", "#a8764a"),
    "engine_queue": ("Engine queue", "#d9702b"),
    "first_token": ("Prefill and network", "#2f7ed8"),
    "answer": ("Until the answer", "#2f7ed8"),
    "tokens": ("Tokens", "#1f9d76"),
    "finish": ("Finish", "#8a94a6"),
}
# Causes by field of TokenTime: name, colour and meaning.
CAUSES: Final[dict[str, tuple[str, str, str]]] = {
    "own": ("Own compute", "#1f9d76", "steps that computed for this request"),
    "co_prefill": ("Co-tenant prefill", "#d9702b", "other requests' prompts in the same steps"),
    "co_decode": ("Co-tenant decode", "#2f7ed8", "other requests' tokens in the same steps"),
    "preemption": ("Preempted", "#d0505c", "evicted from the batch and computed again"),
    "host": ("Host", "#c2921a", "the engine between steps, with work waiting"),
    "queue": ("Queue", "#7065d8", "waited in the engine's queue"),
    "outside": ("Outside", "#8a94a6", "outside the engine: network or gateway"),
}


def fall_chart(request: SingleRequest, fall: Waterfall, slow: SlowTokens, formats: Formats) -> Plot:
    """Return a waterfall chart: a row per stage and per attempt from the arrival on, engine steps, a mark per token."""
    figure, rows = Plot(), []
    for span in fall.spans:
        name, color = STAGES[span.stage]
        rows.append(name)
        _bar(figure, name, span.begin_ns, span.end_ns, color, formats)
    for each in request.tries:
        name = f"Attempt {each.number}: {each.replica or each.provider or each.reason}"
        rows.append(name)
        color = STATUS["good"] if each.outcome == "ok" else STATUS["bad"]
        _bar(
            figure,
            name,
            each.began_ns,
            each.began_ns + each.duration_ns,
            color,
            formats,
            f"{each.reason}, {each.outcome}",
        )
    if slow.steps:
        rows.append("Engine steps")
        spans = [(step.begin_ns, step.end_ns) for step in slow.steps]
        shown = spans if len(spans) <= _MAX_STEPS else [(spans[0][0], spans[-1][1])]
        figure.add_bar(
            y=["Engine steps"] * len(shown),
            base=[begin / _NS_PER_MS for begin, _ in shown],
            x=[(end - begin) / _NS_PER_MS for begin, end in shown],
            orientation="h",
            marker={"color": "#5c86a8"},
            customdata=[formats.duration(end - begin) for begin, end in shown],
            hovertemplate="a step with it, %{customdata}<extra></extra>",
        )
    if fall.token_ns and "Tokens" in rows:
        figure.add_scatter(
            x=[moment / _NS_PER_MS for moment in fall.token_ns],
            y=["Tokens"] * len(fall.token_ns),
            mode="markers",
            marker={"symbol": "line-ns", "size": 14, "line": {"width": 1, "color": "rgba(255, 255, 255, 0.85)"}},
            customdata=[f"token {place + 1} at {formats.duration(at)}" for place, at in enumerate(fall.token_ns)],
            hovertemplate="%{customdata}<extra></extra>",
        )
    charts.style(figure, height=44 + _ROW_PIXELS * max(len(rows), 2))
    figure.update_layout(barmode="overlay", bargap=0.3, hovermode="closest")
    end = max([fall.duration_ns, *(step.end_ns for step in (slow.steps if slow else ()))], default=0)
    figure.update_xaxes(
        type="linear", tickformatstops=[], ticksuffix=" ms", range=[0, end / _NS_PER_MS * 1.09 or 1], showgrid=True
    )
    figure.update_yaxes(
        type="category", categoryorder="array", categoryarray=rows[::-1], rangemode="normal", nticks=0, dtick=1
    )
    return figure


def fall_frame(fall: Waterfall) -> Table:
    """Return a row per stage and per token, in milliseconds from the arrival."""
    rows: list[tuple[str, float, float]] = [
        (STAGES[span.stage][0], span.begin_ns / _NS_PER_MS, span.end_ns / _NS_PER_MS) for span in fall.spans
    ]
    rows += [
        (f"token {place + 1}", moment / _NS_PER_MS, moment / _NS_PER_MS) for place, moment in enumerate(fall.token_ns)
    ]
    return Table(rows, columns=["stage", "begin_ms", "end_ms"])


def gap_chart(fall: Waterfall, formats: Formats) -> Plot:
    """Return a bar chart of the time before each token after the first, the slowest in another colour."""
    gaps = [after - before for before, after in pairwise(fall.token_ns)]
    longest = max(range(len(gaps)), key=gaps.__getitem__)
    figure = Plot().add_bar(
        x=[place + 2 for place in range(len(gaps))],
        y=[gap / _NS_PER_MS for gap in gaps],
        marker={
            "color": ["#d9702b" if place == longest else "#2f7ed8" for place in range(len(gaps))],
        },
        customdata=[f"token {place + 2}: {formats.duration(gap)}" for place, gap in enumerate(gaps)],
        hovertemplate="%{customdata}<extra></extra>",
    )
    charts.style(figure, suffix=" ms", height=170)
    figure.update_layout(hovermode="closest", bargap=0.1)
    figure.update_xaxes(type="linear", tickformatstops=[], tickformat="d", tickprefix="token ")
    return figure


def gap_frame(fall: Waterfall) -> Table:
    """Return a row per token after the first: its number and the time before it, in milliseconds."""
    gaps = [after - before for before, after in pairwise(fall.token_ns)]
    return Table({"token": range(2, len(gaps) + 2), "gap_ms": [gap / _NS_PER_MS for gap in gaps]})


def cause_bars(slow: SlowTokens, formats: Formats) -> Plot:
    """Draw one horizontal bar per slow token, split by cause, slowest on top."""
    names = [f"Token {each.token + 1}" for each in slow.tokens]
    figure = Plot()
    for cause, (name, color, _) in CAUSES.items():
        amounts = [getattr(each.time, f"{cause}_ns") for each in slow.tokens]
        if not any(amounts):
            continue
        figure.add_bar(
            name=name,
            y=names,
            x=[amount / _NS_PER_MS for amount in amounts],
            orientation="h",
            marker={"color": color},
            customdata=[f"{name}: {formats.duration(amount)}" for amount in amounts],
            hovertemplate="%{customdata}<extra></extra>",
        )
    charts.style(figure, height=70 + _ROW_PIXELS * len(names))
    figure.update_layout(
        barmode="stack",
        bargap=0.3,
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0.0, "traceorder": "normal"},
        margin={"l": 0, "r": 4, "t": 28, "b": 0},
    )
    figure.update_xaxes(type="linear", tickformatstops=[], ticksuffix=" ms", showgrid=True)
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names[::-1], rangemode="normal", dtick=1)
    return figure


def slow_frame(slow: SlowTokens) -> Table:
    """Return a row per slow token: its number, its time and the part of each cause, in milliseconds."""
    return Table(
        [
            {
                "token": each.token + 1,
                "waited_ms": each.waited_ns / _NS_PER_MS,
                **{f"{cause}_ms": getattr(each.time, f"{cause}_ns") / _NS_PER_MS for cause in CAUSES},
            }
            for each in slow.tokens
        ]
    )


def candidate_bars(decision: RouteDecision) -> Plot:
    """Return bars of each target's predicted TTFT, the chosen one in full colour, with a line at the actual TTFT."""
    shown = decision.candidates[::-1]
    figure = Plot().add_bar(
        y=[one.replica for one in shown],
        x=[one.predicted_ms for one in shown],
        orientation="h",
        marker={"color": ["#2f7ed8" if one.is_chosen else REST_COLOR for one in shown]},
        text=[
            f"{one.predicted_ms:,.1f} ms" + (f", {one.cached_tokens:,} tokens cached" if one.cached_tokens else "")
            for one in shown
        ],
        textposition="auto",
        hoverinfo="skip",
    )
    charts.style(figure, height=60 + _ROW_PIXELS * len(shown))
    figure.update_layout(hovermode="closest", margin={"l": 0, "r": 4, "t": 22, "b": 0})
    figure.update_xaxes(type="linear", tickformatstops=[], ticksuffix=" ms", rangemode="tozero")
    figure.update_yaxes(type="category", rangemode="normal", dtick=1)
    if decision.actual_ms is not None:
        figure.add_vline(
            x=decision.actual_ms,
            line={"color": STATUS["warn"], "width": 2},
            annotation={"text": f"actual: {decision.actual_ms:,.0f} ms", "yanchor": "bottom"},
            annotation_position="top",
        )
    return figure


def _bar(figure: Plot, name: str, begin_ns: int, end_ns: int, color: str, formats: Formats, more: str = "") -> None:
    figure.add_bar(
        y=[name],
        base=[begin_ns / _NS_PER_MS],
        x=[(end_ns - begin_ns) / _NS_PER_MS],
        orientation="h",
        marker={"color": color},
        text=[formats.duration(end_ns - begin_ns)],
        textposition="outside",
        cliponaxis=False,
        customdata=[f"{name}: {formats.duration(end_ns - begin_ns)}" + (f", {more}" if more else "")],
        hovertemplate="%{customdata}<extra></extra>",
    )
