"""The routing page's charts. All times are shown in the viewer's zone."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from analytics.routing.board import RoutingBoard
from analytics.routing.regret import Decision
from analytics.routing.tries import failed_by_step
from dashboard import charts
from dashboard.gateway_state import GatewayState
from dashboard.plot import Plot
from dashboard.table import Table
from dashboard.theme import GROUP_COLORS, REST_COLOR, STATUS

_NONE: Final = "(no target)"
_FEW_TRIES: Final = 5
_ROOM_FOR_WORDS: Final = 1.7  # space for the label after the longest bar


def target_name(pool: str, target: str) -> str:
    """Return a target's name, "pool/target"; requests that reached no target have a name of their own."""
    return f"{pool}/{target}" if target else f"{pool}/{_NONE}" if pool else _NONE


def failed_tries(board: RoutingBoard, zone: ZoneInfo) -> Plot:
    """Return stacked bars of failed attempts over time, one colour per target."""
    found = {target_name(*where): steps for where, steps in failed_by_step(board.tries).items()}
    colors = charts.assign_colors(sorted(found))
    figure = Plot()
    for name, steps in sorted(found.items(), key=lambda one: -sum(one[1].values())):
        figure.add_bar(
            name=name,
            x=[step.astimezone(zone) for step in steps],
            y=list(steps.values()),
            width=board.scope.step_seconds * 850,  # bar width in milliseconds, with a gap
            offset=0,
            hovertemplate="%{y:,}",
            marker={"color": colors[name]},
        )
    figure.update_layout(barmode="stack")
    figure = _over(board, charts.style(figure), zone)
    together = sum((Counter(steps) for steps in found.values()), Counter())
    # For small counts Plotly would add fractional ticks.
    ticks = {"dtick": 1} if max(together.values(), default=0) < _FEW_TRIES else {"nticks": 4}
    figure.update_yaxes(tickformat=",d", **ticks)
    if not found:
        _say(figure, "No failed attempts")
    return _with_legend(figure)


def failed_tries_frame(board: RoutingBoard) -> Table:
    """Return the chart's data: step (UTC), target, attempts."""
    return Table(
        [
            (step, target_name(*where), count)
            for where, steps in failed_by_step(board.tries).items()
            for step, count in steps.items()
        ],
        columns=["step", "target", "tries"],
    )


def hits_over_time(board: RoutingBoard, zone: ZoneInfo) -> Plot:
    """Return lines of the share of prompt tokens found in prefix caches, one per pool."""
    pools = sorted({one.pool for one in board.hits})
    colors = charts.assign_colors(pools)
    figure = Plot()
    for pool in pools:
        points = [one for one in board.hits if one.pool == pool and one.share is not None]
        figure.add_scatter(
            name=charts.group_name(pool),
            x=[one.step.astimezone(zone) for one in points],
            y=[100 * (one.share or 0.0) for one in points],
            mode="lines+markers" if len(points) < 3 else "lines",
            line={"color": colors[pool], "width": 2},
            hovertemplate="%{y:.1f} %",
        )
    figure = _over(board, charts.style(figure, suffix=" %"), zone)
    figure.update_yaxes(range=[0, 100])
    return _with_legend(figure)


def hits_frame(board: RoutingBoard) -> Table:
    """Return the chart's data: step (UTC), pool, requests, input tokens, cached tokens."""
    return Table(
        [(one.step, one.pool, one.requests, one.input_tokens, one.cached_tokens) for one in board.hits],
        columns=["step", "pool", "requests", "input_tokens", "cached_tokens"],
    )


def reasons(counts: Mapping[str, int]) -> Plot:
    """Return horizontal bars of additional attempts by reason."""
    figure = Plot()
    names = list(counts)[::-1]
    figure.add_bar(
        y=names,
        x=[counts[name] for name in names],
        orientation="h",
        text=[f"{counts[name]:,}" for name in names],
        textposition="outside",
        cliponaxis=False,
        hoverinfo="skip",
        marker={"color": GROUP_COLORS[0]},
    )
    if not names:
        _say(figure, "No additional attempts")
    return _lying(figure, max(counts.values(), default=1))


def breaker_history(state: GatewayState, start: datetime, end: datetime, zone: ZoneInfo) -> Plot:
    """Return a timeline of open circuits, one row per target. Circuits still open end with the range."""
    figure = Plot()
    spans = _spans(state, end)
    shown = [(name, max(begun, start), min(ended, end), why) for name, begun, ended, why in spans if ended > start]
    for name, begun, ended, why in shown:
        figure.add_bar(
            y=[name],
            x=[max((ended - begun).total_seconds(), 1.0) * 1000],
            base=[begun.astimezone(zone)],
            orientation="h",
            width=0.5,
            customdata=[f"{begun.astimezone(zone):%H:%M:%S} – {ended.astimezone(zone):%H:%M:%S}<br>{_short(why)}"],
            hovertemplate="%{y}<br>%{customdata}<extra></extra>",
            marker={"color": STATUS["bad"]},
        )
    if not shown:
        _say(figure, "No circuit was open in this range")
    figure.update_layout(barmode="overlay")
    figure = charts.style(figure)
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(type="date", range=[start.astimezone(zone), end.astimezone(zone)])
    figure.update_yaxes(rangemode="normal", showgrid=False)
    return figure


def prediction_bars(decision: Decision) -> Plot:
    """Return bars of each target's predicted TTFT, the chosen one in full colour, with a line at the actual TTFT."""
    names = list(decision.predicted_ms)[::-1]
    figure = Plot()
    figure.add_bar(
        y=[f"{name}<br>{_predicted(decision, name)}" for name in names],
        x=[decision.predicted_ms[name] for name in names],
        orientation="h",
        hoverinfo="skip",
        marker={
            "color": [GROUP_COLORS[0] if name == decision.chosen else REST_COLOR for name in names],
        },
    )
    if decision.ttft_ms is not None:
        figure.add_vline(
            x=decision.ttft_ms,
            line={"color": STATUS["warn"], "width": 2},
            annotation={"text": f"actual: {decision.ttft_ms:,.0f} ms", "yanchor": "bottom"},
            annotation_position="top",
        )
    longest = max([*decision.predicted_ms.values(), decision.ttft_ms or 0.0], default=1.0)
    figure = _lying(figure, longest, room=1.15)
    figure.update_layout(margin={"l": 0, "r": 4, "t": 22, "b": 0})
    return figure


def _predicted(decision: Decision, name: str) -> str:
    cached = decision.cached_tokens.get(name)
    return f"{decision.predicted_ms[name]:,.1f} ms" + (f", {cached:,} cached" if cached else "")


def _spans(state: GatewayState, end: datetime) -> list[tuple[str, datetime, datetime, str]]:
    """Return the periods of open circuits: target, start, end, reason."""
    begun: dict[str, tuple[datetime, str]] = {}
    spans = []
    for change in state.changes:
        if change.is_left_alone:
            begun.setdefault(change.target, (change.at, change.why))
        elif change.target in begun:
            at, why = begun.pop(change.target)
            spans.append((change.target, at, change.at, why))
    spans += [(name, at, max(end, at + timedelta(seconds=1)), why) for name, (at, why) in begun.items()]
    names = Counter(name for name, *_ in spans)
    return sorted(spans, key=lambda one: (names[one[0]], one[0], one[1]))


def _over(board: RoutingBoard, figure: Plot, zone: ZoneInfo) -> Plot:
    covered = board.scope.covered
    figure.update_xaxes(type="date", range=[covered.start.astimezone(zone), covered.end.astimezone(zone)])
    return figure


def _with_legend(figure: Plot) -> Plot:
    figure.update_layout(showlegend=True, legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"})
    figure.update_layout(margin={"t": 28})
    return figure


def _lying(figure: Plot, longest: float, room: float = _ROOM_FOR_WORDS) -> Plot:
    figure = charts.style(figure)
    figure.update_layout(hovermode="closest", bargap=0.35)
    figure.update_xaxes(showticklabels=False, range=[0, longest * room], tickformatstops=[])
    figure.update_yaxes(rangemode="normal", showgrid=False, ticksuffix="  ")
    return figure


def _say(figure: Plot, sentence: str) -> None:
    """Add a sentence to a chart without data."""
    figure.add_annotation(
        text=sentence, showarrow=False, xref="paper", yref="paper", x=0.5, y=0.5, font={"color": REST_COLOR}
    )
    figure.update_yaxes(visible=False)


def _short(why: str) -> str:
    return why if len(why) <= 90 else why[:89] + "…"
