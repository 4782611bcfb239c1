"""A chart in the making: its traces and layout, of which Plotly makes the figure and its JSON in one go.

Each change of a finished Plotly figure checks and copies what it changes; twelve milliseconds a chart of nine groups.
Collected first and built once, unchecked, it is three (decision 0058). Tests read `data`, which Plotly checks.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final, Self

import plotly.graph_objects as go
import plotly.io

from dashboard.theme import GROUP_COLORS, SEQUENTIAL

_TEMPLATE: Final = "tollkeeper"

# What all charts share and Streamlit's theme, which the browser lays over it, leaves alone.
plotly.io.templates[_TEMPLATE] = go.layout.Template(
    layout={"colorway": list(GROUP_COLORS), "hoverlabel": {"namelength": 24}},
    data={
        "bar": [{"marker": {"line": {"width": 0}}}],
        "heatmap": [{"colorscale": [list(stop) for stop in SEQUENTIAL], "showscale": False}],
    },
)


@cache
def _template() -> dict[str, Any]:
    """Return the registered look as a figure that is not checked takes it."""
    look: dict[str, Any] = plotly.io.templates[_TEMPLATE].to_plotly_json()
    return look


class Plot:
    """Traces, a layout, and what Plotly adds to both. Values are as Plotly has them
    (https://plotly.com/python/reference/).
    """

    __slots__ = ("_additions", "_layout", "_traces")

    def __init__(self) -> None:
        self._traces: list[dict[str, Any]] = []
        self._layout: dict[str, Any] = {"template": _template()}
        self._additions: list[Callable[[go.Figure], object]] = []

    @property
    def data(self) -> tuple[Any, ...]:
        """Return Plotly's traces, checked. Raises ValueError if Plotly knows no such property or value."""
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
        """Draw a lying line over the whole width, as Plotly places it."""
        self._additions.append(partial(go.Figure.add_hline, **line))
        return self

    def add_vline(self, **line: Any) -> Self:
        """Draw an upright line over the whole height, as Plotly places it and its words."""
        self._additions.append(partial(go.Figure.add_vline, **line))
        return self

    def add_annotation(self, **annotation: Any) -> Self:
        """Write words into the figure."""
        self._additions.append(partial(go.Figure.add_annotation, **annotation))
        return self

    def update_layout(self, **changes: Any) -> Self:
        """Change the layout: parts are merged into what is there, anything else replaces it."""
        _merge(self._layout, changes)
        return self

    def update_xaxes(self, **changes: Any) -> Self:
        """Change the axis across."""
        return self.update_layout(xaxis=changes)

    def update_yaxes(self, **changes: Any) -> Self:
        """Change the upright axis."""
        return self.update_layout(yaxis=changes)

    def figure(self, *, is_checked: bool = False) -> go.Figure:
        """Build Plotly's figure. Raises ValueError if it is to be checked and is none."""
        figure = go.Figure(data=self._traces, layout=self._layout, _validate=is_checked)
        for addition in self._additions:
            addition(figure)
        return figure

    def as_json(self) -> str:
        """Write the figure as Plotly does for the browser."""
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
