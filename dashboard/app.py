"""The Streamlit entry: which pages there are. Each page is a function in `dashboard/views`."""

from pathlib import Path

import streamlit as st

from dashboard.views.overview import overview_page

_HERE = Path(__file__).parent

# The icon is a file: the browser would fetch one of Streamlit's named icons from a server of Google's.
st.set_page_config(page_title="Tollkeeper", page_icon=str(_HERE / "icon.svg"), layout="wide")
st.logo(str(_HERE / "logo.svg"), size="large")
st.navigation(
    [st.Page(overview_page, title="Overview", icon=":material/monitoring:", url_path="overview", default=True)],
    position="top",
).run()
