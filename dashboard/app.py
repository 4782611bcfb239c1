"""The Streamlit entry: which pages there are. Each page is a function in `dashboard/views`."""

from pathlib import Path

import streamlit as st

from dashboard.views.overview import overview_page

st.set_page_config(page_title="Tollkeeper", page_icon=":material/toll:", layout="wide")
st.logo(str(Path(__file__).with_name("logo.svg")), size="large")
st.navigation(
    [st.Page(overview_page, title="Overview", icon=":material/monitoring:", url_path="overview", default=True)],
    position="top",
).run()
