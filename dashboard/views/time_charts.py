"""Charts over time that pages of latency, GPUs and requests share: lines, stacked areas and bars with a legend."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from dashboard import charts
from dashboard.plot import Plot
from dashboard.table import Table

_LEGEND: Final = {
    "orientation": "h",
    "yanchor": "bottom",
    "y": 1.0,
    "xanchor": "left",
    "x": 0.0,
    "font": {"size": 12},
    "itemclick": "toggleothers",
    "itemdoubleclick": "toggle",
}
_LEGEND_PIXELS: Final = 26


@dataclass(frozen=True, slots=True)
class Line:
    """One named line: a value per step (`None` if unknown), and a tooltip per value."""

    name: str
    values: Sequence[float | None]
    color: str
    texts: Sequence[str] = ()


def lines(
    steps: Sequence[datetime],
    drawn: Sequence[Line],
    zone: ZoneInfo,
    *,
    suffix: str = "",
    height: int = charts.CHART_HEIGHT,
) -> Plot:
    """Return a line chart. An unknown value breaks its line; a single known value is a point."""
    figure = Plot()
    for line in drawn:
        figure.add_scatter(
            name=line.name,
            x=_local(steps, zone),
            y=list(line.values),
            mode="lines+markers" if _is_broken(line.values) else "lines",
            marker={"size": 4},
            line={"color": line.color, "width": 1.8},
            customdata=list(line.texts) or None,
            hovertemplate="%{customdata}" if line.texts else "%{y:.3g}" + suffix,
        )
    return _finished(figure, steps, zone, suffix, has_legend=len(drawn) > 1, height=height)


def areas(
    steps: Sequence[datetime], drawn: Sequence[Line], zone: ZoneInfo, *, suffix: str = "", height: int = 260
) -> Plot:
    """Return stacked areas, the first at the bottom."""
    figure = Plot()
    for line in drawn:
        figure.add_scatter(
            name=line.name,
            x=_local(steps, zone),
            y=list(line.values),
            mode="lines",
            stackgroup="one",
            line={"color": line.color, "width": 0, "shape": "hv"},
            fillcolor=line.color,
            customdata=list(line.texts) or None,
            hovertemplate="%{customdata}" if line.texts else "%{y:.3g}" + suffix,
        )
    return _finished(figure, steps, zone, suffix, has_legend=len(drawn) > 1, height=height)


def stacked_bars(steps: Sequence[datetime], drawn: Sequence[Line], zone: ZoneInfo, *, suffix: str = "") -> Plot:
    """Return stacked bars, the first at the bottom."""
    figure = Plot()
    for line in drawn:
        figure.add_bar(
            name=line.name,
            x=_local(steps, zone),
            y=list(line.values),
            marker={"color": line.color},
            customdata=list(line.texts) or None,
            hovertemplate="%{customdata}" if line.texts else "%{y:.3g}" + suffix,
        )
    figure.update_layout(barmode="stack", bargap=0.12)
    return _finished(figure, steps, zone, suffix, has_legend=len(drawn) > 1)


def line_frame(steps: Sequence[datetime], drawn: Sequence[Line]) -> Table:
    """Return lines as a table for export: a row per step (start, UTC), a column per line."""
    return Table({"start": list(steps), **{line.name: list(line.values) for line in drawn}})


def _finished(
    figure: Plot,
    steps: Sequence[datetime],
    zone: ZoneInfo,
    suffix: str,
    *,
    has_legend: bool,
    height: int = charts.CHART_HEIGHT,
) -> Plot:
    charts.style(figure, suffix=suffix, height=height)
    if len(steps) > 1:
        figure.update_xaxes(range=_local([steps[0], steps[-1] + _step(steps)], zone))
    if has_legend:
        figure.update_layout(showlegend=True, legend=_LEGEND)
        figure.update_layout(margin={"l": 0, "r": 4, "t": _LEGEND_PIXELS, "b": 0})
    return figure


def _step(steps: Sequence[datetime]) -> timedelta:
    return steps[1] - steps[0]


def _local(steps: Sequence[datetime], zone: ZoneInfo) -> list[datetime]:
    return [step.astimezone(zone) for step in steps]


def _is_broken(values: Sequence[float | None]) -> bool:
    """Return whether a known value stands between unknown ones, which a line alone would not show."""
    known = [value is not None for value in values]
    return any(
        is_known and not (place and known[place - 1]) and not (place + 1 < len(known) and known[place + 1])
        for place, is_known in enumerate(known)
    )
