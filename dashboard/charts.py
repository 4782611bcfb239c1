"""Plotly figures: one colour per tenant or model on every page, units in titles, quiet axes."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2s
from html import escape
from typing import Final
from zoneinfo import ZoneInfo

from analytics.series import Point, Series
from dashboard import formats
from dashboard.plot import Plot
from dashboard.theme import GROUP_COLORS, GROUP_HUES, REST_COLOR

CHART_HEIGHT: Final = 230
_NO_NAME: Final = "(none)"
_REST: Final = "all others"
_PARTIAL_OPACITY: Final = 0.45


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of a chart: `value` is a point's height, `text` its tooltip. `money` formats the labels of an axis that
    goes below 0, as corrections do.
    """

    title: str
    value: Callable[[Point], float]
    text: Callable[[Point], str]
    prefix: str = ""
    suffix: str = ""
    money: formats.Formats | None = None


REQUESTS: Final = Measure("Requests", lambda point: point.requests, lambda point: formats.count(point.requests))
TOKENS: Final = Measure(
    "Tokens",
    lambda point: point.input_tokens + point.output_tokens,
    lambda point: f"{formats.count(point.input_tokens)} in, {formats.count(point.output_tokens)} out",
)
COST: Final = Measure(
    "Cost in USD", lambda point: float(point.cost_usd), lambda point: formats.money(point.cost_usd), prefix="$"
)


def cost_in(written: formats.Formats) -> Measure:
    """Return the measure of cost in a viewer's currency."""
    before, after = written.money_signs
    return Measure(
        f"Cost in {written.currency}",
        lambda point: written.amount(point.cost_usd) or 0.0,
        lambda point: written.money(point.cost_usd),
        before,
        after,
        written,
    )


def assign_colors(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each name, by its hash; if two would share a hue, the later one gets the next.

    Names appended to the list do not change the colours of earlier names.
    """
    colors: dict[str, str] = {}
    slots = range(len(GROUP_COLORS))
    free, hues = set(slots), set(GROUP_HUES)
    for name in dict.fromkeys(names):
        first = int.from_bytes(blake2s(name.encode(), digest_size=4).digest(), "big") % len(slots)
        free = free or set(slots)
        in_turn = [place for place in (*slots[first:], *slots[:first]) if place in free]
        slot = next((place for place in in_turn if GROUP_HUES[place] in hues), in_turn[0])
        free.discard(slot)
        hues.discard(GROUP_HUES[slot])
        colors[name] = GROUP_COLORS[slot]
    return colors


def colors_in_order(names: Iterable[str]) -> dict[str, str]:
    """Return colours for names that only one chart shows (engines, devices), in alphabetical order.

    A few names get distinct colours; a colour may change when a name is added.
    """
    return {name: GROUP_COLORS[place % len(GROUP_COLORS)] for place, name in enumerate(sorted(set(names)))}


def group_name(group: str | None) -> str:
    """Return a group's display name. `None` is the rest, all groups without a colour of their own; "" has no name."""
    return _REST if group is None else group or _NO_NAME


def color_of(group: str | None, colors: Mapping[str, str]) -> str:
    """Return a group's colour."""
    return REST_COLOR if group is None else colors.get(group, REST_COLOR)


def step_name(step: timedelta) -> str:
    """Return the name of a time step: "minute", "5 minutes", "day"."""
    seconds = int(step.total_seconds())
    for size, unit in ((7 * 86_400, "week"), (86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds % size == 0:
            number = seconds // size
            return unit if number == 1 else f"{number} {unit}s"
    return f"{seconds} seconds"


def bars(series: Series, measure: Measure, colors: Mapping[str, str], zone: ZoneInfo | None = None) -> Plot:
    """Return stacked bars of one measure over time, in a time zone (default UTC).

    Bars that the range covers only partly are paler.
    """
    figure = Plot()
    steps = local_times(series.steps, zone)
    above, below = [0.0] * len(steps), [0.0] * len(steps)
    opacity = [_PARTIAL_OPACITY if index in series.partial else 1.0 for index in range(len(series.steps))]
    for group in ordered_groups(series):
        points = series.groups[group]
        heights = [measure.value(point) for point in points]
        above = [sum_of + max(height, 0.0) for sum_of, height in zip(above, heights, strict=True)]
        below = [sum_of + min(height, 0.0) for sum_of, height in zip(below, heights, strict=True)]
        figure.add_bar(
            name=group_name(group),
            x=steps,
            y=heights,
            customdata=[measure.text(point) for point in points],
            hovertemplate="%{customdata}",
            marker={"color": color_of(group, colors), "opacity": opacity},
        )
    figure.update_layout(barmode="stack", bargap=0.15)
    if steps:
        figure.update_xaxes(range=[steps[0], steps[-1] + series.step])
    style(figure, prefix=measure.prefix, suffix=measure.suffix)
    if measure.money is not None and steps:
        money_axis(figure, min(below), max(above), measure.money)
    return figure


def local_times(moments: Iterable[datetime], zone: ZoneInfo | None) -> list[datetime]:
    """Return times as local times of a zone, without the zone: Plotly's axes have no time zones."""
    return [moment.astimezone(zone or UTC).replace(tzinfo=None) for moment in moments]


def style(figure: Plot, *, prefix: str = "", suffix: str = "", height: int = CHART_HEIGHT) -> Plot:
    """Give a chart over time the axis style that all charts share, and return it.

    `prefix` and `suffix` are added to each label of the y axis, such as "$" and " ms".
    """
    figure.update_layout(
        height=height,
        margin={"l": 0, "r": 4, "t": 6, "b": 0},
        showlegend=False,
        hovermode="x unified",
        uirevision="keep",  # a refresh keeps the viewer's zoom
    )
    figure.update_xaxes(title=None, showgrid=False, tickformatstops=_TIME_TICKS, nticks=6, automargin=True)
    figure.update_yaxes(
        title=None,
        rangemode="tozero",
        tickprefix=prefix,
        ticksuffix=suffix,
        nticks=5,
        automargin=True,
        zeroline=False,
    )
    return figure


def money_axis(figure: Plot, lowest: float, highest: float, written: formats.Formats) -> Plot:
    """Label a y axis that goes below 0 with amounts such as -$0.50, not $-0.50 as Plotly does; return the chart."""
    span = max(highest, 0.0) - min(lowest, 0.0)
    if lowest >= 0 or not math.isfinite(span) or span <= 0:
        return figure
    power = math.floor(math.log10(span / _MOST_TICKS))
    size = next(size for size in _TICK_SIZES if size * 10.0**power * _MOST_TICKS >= span)
    step = size * 10.0**power
    numbers = range(math.floor(lowest / step), math.ceil(max(highest, 0.0) / step) + 1)
    places = max(0, -power - (size == _TICK_SIZES[-1]))
    figure.update_yaxes(
        tickprefix="",
        ticksuffix="",
        tickvals=[number * step for number in numbers],
        ticktext=[written.axis_money(number * step, places) for number in numbers],
    )
    return figure


_MOST_TICKS: Final = 4
_TICK_SIZES: Final = (1, 2, 5, 10)
_TIME_TICKS: Final = [
    {"dtickrange": [None, 86_400_000 - 1], "value": "%H:%M\n%-d %b"},
    {"dtickrange": [86_400_000, None], "value": "%-d %b\n%Y"},
]


def ordered_groups(series: Series) -> list[str | None]:
    """Return a series' groups in stacking order: most requests first, the rest (`None`) last."""

    def rank(group: str | None) -> tuple[bool, int, str]:
        return (group is None, -sum(point.requests for point in series.groups[group]), group or "")

    return sorted(series.groups, key=rank)


def legend(series: Series, colors: Mapping[str, str]) -> str:
    """Return the legend that all charts of a series share, as HTML. Names are escaped: callers choose them."""
    entries = "".join(
        '<span style="display:inline-flex;align-items:center;gap:6px;margin-right:16px;white-space:nowrap">'
        f'<span style="width:10px;height:10px;border-radius:3px;background:{color_of(group, colors)}"></span>'
        f"{escape(group_name(group))}</span>"
        for group in ordered_groups(series)
    )
    return f'<div style="font-size:0.86rem;line-height:1.7;opacity:0.9">{entries}</div>'
