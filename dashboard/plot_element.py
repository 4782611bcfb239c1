"""A plot as an element of a page: what `st.plotly_chart` sends, of JSON that is made already.

Streamlit's own function would copy Plotly's figure, look all of it through again and write it a second time.
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
    """Draw a plot as wide as its place and as high as its layout says."""
    element = PlotlyChart()
    element.theme = "streamlit"
    element.spec = plot.as_json()
    element.config = msgspec.json.encode(config).decode()
    element.alt = alt
    # By its contents too: the browser draws an element again only where it has another name.
    element.id = compute_and_register_element_id(
        _KIND, user_key=key, key_as_main_identity=False, dg=None, spec=element.spec, config=element.config, alt=alt
    )
    layout = LayoutConfig(width="stretch", height=plot.height or _DEFAULT_HEIGHT)
    st._main._enqueue(_KIND, element, layout_config=layout)  # what every `st.` function ends with
