"""The Streamlit entry, run for each viewer and page: the window's name and logo, then the frame around the pages."""

from pathlib import Path

import streamlit as st

from dashboard import frame
from dashboard.pages import PAGES

_HERE = Path(__file__).parent

# The icon is a file: browsers load Streamlit's named icons from Google's servers.
st.set_page_config(page_title="Tollkeeper", page_icon=str(_HERE / "icon.svg"), layout="wide", initial_sidebar_state=200)
st.logo(str(_HERE / "logo.svg"), size="large")
frame.run(PAGES)
