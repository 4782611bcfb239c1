"""The latency page's charts: a heat map on a logarithmic scale, percentiles over time, ranges by prompt length."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from analytics.latency.histogram import BOUNDS_TENTHS_MS, TENTH_MS_NS, Histogram, step_end
from dashboard import charts
from dashboard.formats import Formats
from dashboard.plot import Plot
from dashboard.table import Table
from dashboard.views.time_charts import Line

# Percentiles: name, quantile, colour.
LEVELS: Final = (("p50", 0.5, "#1f9d76"), ("p95", 0.95, "#d9702b"), ("p99", 0.99, "#7065d8"))
MAP_HEIGHT: Final = 320
_LABELLED: Final = tuple(10**power * digit for power in range(1, 7) for digit in (1, 3))  # tenths of a millisecond


def heat_map(steps: Sequence[datetime], histograms: Sequence[Histogram], formats: Formats) -> Plot:
    """Return a heat map of request counts by time (x) and duration (y, logarithmic), with percentile lines."""
    rows = _rows(histograms)
    counts = [[each.counts.get(BOUNDS_TENTHS_MS[row], 0) for each in histograms] for row in rows]
    x = [step.astimezone(formats.zone) for step in steps]
    figure = Plot()
    figure.add_heatmap(
        x=x,
        y=[row + 0.5 for row in rows],
        # The square root keeps a few slow requests visible beside many fast ones.
        z=[[math.sqrt(count) if count else None for count in line] for line in counts],
        customdata=[[f"{formats.counted(count, 'request')}, {_bounds(row, formats)}" for count in line] for row, line in
                    zip(rows, counts, strict=True)],
        hovertemplate="%{x|%H:%M %-d %b}: %{customdata}<extra></extra>",
        xgap=1,
        ygap=1,
    )  # fmt: skip
    for name, level, color in LEVELS:
        values = [each.quantile_ns(level) for each in histograms]
        figure.add_scatter(
            name=name,
            x=x,
            y=[None if value is None else _height(value) for value in values],
            mode="lines+markers",
            marker={"size": 4},
            line={"color": color, "width": 1.6},
            customdata=[formats.duration(value) for value in values],
            hovertemplate=name + " %{customdata}<extra></extra>",
        )
    charts.style(figure, height=MAP_HEIGHT)
    labels = {_height(tenths * TENTH_MS_NS): formats.duration(tenths * TENTH_MS_NS) for tenths in _LABELLED}
    figure.update_yaxes(
        rangemode="normal",
        range=[rows[0], rows[-1] + 1],
        tickvals=list(labels),
        ticktext=list(labels.values()),
        showgrid=False,
    )
    figure.update_layout(
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0.0},
        margin={"l": 0, "r": 4, "t": 26, "b": 0},
    )
    return figure


def heat_map_frame(steps: Sequence[datetime], histograms: Sequence[Histogram]) -> Table:
    """Return a row per time step and duration bucket that has requests, with the bucket's bounds in milliseconds."""
    rows = []
    for start, histogram in zip(steps, histograms, strict=True):
        for low, count in sorted(histogram.counts.items()):
            high = step_end(low)
            rows.append((start, low / 10, None if high is None else high / 10, count))
    return Table(rows, columns=["start", "above_ms", "up_to_ms", "requests"])


def percentile_lines(histograms: Sequence[Histogram], formats: Formats) -> list[Line]:
    """Return the percentiles over time, in milliseconds."""
    drawn = []
    for name, level, color in LEVELS:
        values = [each.quantile_ns(level) for each in histograms]
        milliseconds = [None if value is None else value / 1e6 for value in values]
        drawn.append(Line(name, milliseconds, color, [formats.duration(value) for value in values]))
    return drawn


def prompt_ranges(ranges: Mapping[str, Histogram], formats: Formats) -> Plot:
    """Return a bar from the 50th to the 99th percentile per prompt class, with the 95th marked."""
    figure = Plot()
    names = list(ranges)[::-1]
    for name in names:
        levels = [(short, ranges[name].quantile_ns(level) or 0.0, color) for short, level, color in LEVELS]
        figure.add_scatter(
            x=[value / 1e6 for _, value, _ in levels],
            y=[name] * len(levels),
            mode="lines+markers",
            line={"color": "#8a94a6", "width": 3},
            marker={"color": [color for _, _, color in levels], "size": 11},
            customdata=[f"{short} {formats.duration(value)}" for short, value, _ in levels],
            hovertemplate="%{customdata}<extra></extra>",
            cliponaxis=False,
        )
    charts.style(figure, height=60 + 34 * max(len(names), 2))
    figure.update_layout(hovermode="closest", margin={"l": 0, "r": 24, "t": 6, "b": 0})
    figure.update_xaxes(type="log", tickformatstops=[], tickformat="~s", ticksuffix=" ms", dtick=1)
    figure.update_yaxes(type="category", rangemode="normal", range=[-0.5, len(names) - 0.4])
    return figure


def _rows(histograms: Sequence[Histogram]) -> range:
    """Return the range of duration buckets that have requests, with one more on either side."""
    places = [BOUNDS_TENTHS_MS.index(low) for each in histograms for low in each.counts]
    return range(max(min(places) - 1, 0), min(max(places) + 2, len(BOUNDS_TENTHS_MS)))


def _height(nanoseconds: float) -> float:
    """Return a duration's position on the y axis, in buckets from the lowest."""
    tenths = nanoseconds / TENTH_MS_NS
    place = min(bisect_right(BOUNDS_TENTHS_MS, tenths) - 1, len(BOUNDS_TENTHS_MS) - 1)
    low, high = BOUNDS_TENTHS_MS[place], step_end(BOUNDS_TENTHS_MS[place])
    if high is None:
        return float(place)
    if low == 0:
        return place + tenths / high
    return place + math.log(tenths / low) / math.log(high / low)


def _bounds(row: int, formats: Formats) -> str:
    low = BOUNDS_TENTHS_MS[row]
    high = step_end(low)
    if high is None:
        return f"above {formats.duration(low * TENTH_MS_NS)}"
    if low == 0:
        return f"up to {formats.duration(high * TENTH_MS_NS)}"
    return f"{formats.duration(low * TENTH_MS_NS)} to {formats.duration(high * TENTH_MS_NS)}"
