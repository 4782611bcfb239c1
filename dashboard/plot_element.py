"""Draws a `Plot` on a page: sends the same message as `st.plotly_chart`, with JSON that exists already.

`st.plotly_chart` would copy, validate and serialise the figure a second time.
"""

from typing import Final

import msgspec
import streamlit as st
from streamlit.elements.lib.layout_utils import LayoutConfig
from streamlit.elements.lib.utils import compute_and_register_element_id
from streamlit.proto.PlotlyChart_pb2 import PlotlyChart

from dashboard.plot import Plot

_KIND: Final = "plotly_chart"
_DEFAULT_HEIGHT: Final = 450  # Plotly's


def draw_plot(plot: Plot, *, key: str, config: dict[str, object], alt: str) -> None:
    """Draw a plot in the full width of its container and with its layout's height."""
    element = PlotlyChart()
    element.theme = "streamlit"
    element.spec = plot.as_json()
    element.config = msgspec.json.encode(config).decode()
    element.alt = alt
    # The id includes the contents: the browser redraws an element only if its id changes.
    element.id = compute_and_register_element_id(
        _KIND, user_key=key, key_as_main_identity=False, dg=None, spec=element.spec, config=element.config, alt=alt
    )
    layout = LayoutConfig(width="stretch", height=plot.height or _DEFAULT_HEIGHT)
    st._main._enqueue(_KIND, element, layout_config=layout)  # the last step of every `st.` function
