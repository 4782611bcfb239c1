"""A builder of Plotly charts: collects traces and layout, and makes the figure's JSON once, without validation.

Plotly validates and copies at each change of a figure: 12 ms for a chart of nine groups, against 3 ms here
(decision 0058). Tests read `data`, which Plotly validates.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final, Self

import plotly.graph_objects as go
import plotly.io

from dashboard.theme import GROUP_COLORS, SEQUENTIAL

_TEMPLATE: Final = "tollkeeper"

# Layout of all charts that Streamlit's theme, applied in the browser, does not override.
plotly.io.templates[_TEMPLATE] = go.layout.Template(
    layout={"colorway": list(GROUP_COLORS), "hoverlabel": {"namelength": 24}},
    data={
        "bar": [{"marker": {"line": {"width": 0}}}],
        "heatmap": [{"colorscale": [list(stop) for stop in SEQUENTIAL], "showscale": False}],
    },
)


@cache
def _template() -> dict[str, Any]:
    """Return the shared template in the form that an unvalidated figure needs."""
    look: dict[str, Any] = plotly.io.templates[_TEMPLATE].to_plotly_json()
    return look


class Plot:
    """A chart's traces and layout. Values are those of Plotly's reference (https://plotly.com/python/reference/)."""

    __slots__ = ("_additions", "_layout", "_traces")

    def __init__(self) -> None:
        self._traces: list[dict[str, Any]] = []
        self._layout: dict[str, Any] = {"template": _template()}
        self._additions: list[Callable[[go.Figure], object]] = []

    @property
    def data(self) -> tuple[Any, ...]:
        """Return the traces, validated by Plotly. Raises ValueError for an unknown property or value."""
        return tuple(self.figure(is_checked=True).data)

    @property
    def height(self) -> int | None:
        """Return the height in pixels; `None` if the layout has none."""
        height: int | None = self._layout.get("height")
        return height

    def add_bar(self, **trace: Any) -> Self:
        """Add bars."""
        return self._add("bar", trace)

    def add_scatter(self, **trace: Any) -> Self:
        """Add lines, areas or marks."""
        return self._add("scatter", trace)

    def add_heatmap(self, **trace: Any) -> Self:
        """Add a heat map."""
        return self._add("heatmap", trace)

    def add_waterfall(self, **trace: Any) -> Self:
        """Add a waterfall of amounts."""
        return self._add("waterfall", trace)

    def add_hline(self, **line: Any) -> Self:
        """Add a horizontal line over the whole width, with Plotly's `add_hline` arguments."""
        self._additions.append(partial(go.Figure.add_hline, **line))
        return self

    def add_vline(self, **line: Any) -> Self:
        """Add a vertical line over the whole height, with Plotly's `add_vline` arguments."""
        self._additions.append(partial(go.Figure.add_vline, **line))
        return self

    def add_annotation(self, **annotation: Any) -> Self:
        """Add a text to the chart."""
        self._additions.append(partial(go.Figure.add_annotation, **annotation))
        return self

    def update_layout(self, **changes: Any) -> Self:
        """Change the layout: dicts are merged, other values are replaced."""
        _merge(self._layout, changes)
        return self

    def update_xaxes(self, **changes: Any) -> Self:
        """Change the x axis."""
        return self.update_layout(xaxis=changes)

    def update_yaxes(self, **changes: Any) -> Self:
        """Change the y axis."""
        return self.update_layout(yaxis=changes)

    def figure(self, *, is_checked: bool = False) -> go.Figure:
        """Return the Plotly figure. If `is_checked`, raises ValueError for invalid properties."""
        figure = go.Figure(data=self._traces, layout=self._layout, _validate=is_checked)
        for addition in self._additions:
            addition(figure)
        return figure

    def as_json(self) -> str:
        """Return the figure as JSON for Plotly in the browser."""
        return str(plotly.io.to_json(self.figure(), validate=False))

    def _add(self, kind: str, trace: dict[str, Any]) -> Self:
        self._traces.append({"type": kind, **trace})
        return self


def _merge(into: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for name, value in changes.items():
        present = into.get(name)
        if isinstance(value, Mapping) and isinstance(present, dict):
            _merge(present, value)
        else:
            into[name] = dict(value) if isinstance(value, Mapping) else value
