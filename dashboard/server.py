"""What `python -m dashboard` serves: Streamlit's pages (`app.py`), and the few addresses that are not Streamlit's."""

import gc
import logging
from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from dashboard import pages, sign_in
from dashboard.oidc import streamlit_secrets
from dashboard.settings import DashboardSettings
from dashboard.states import show_surprise

log = logging.getLogger(__name__)
log.debug("pages_loaded count=%d", len(pages.PAGES))  # here, with what they import: the first viewer would wait for it


def _said(error: Exception) -> bool:
    """Say that a page failed, without what failed: that is in the log. True: Streamlit adds nothing."""
    log.error("page_failed error=%s", type(error).__name__, exc_info=error)
    show_surprise()
    return True


gc.collect()
gc.freeze()  # what was imported stays: out of the sight of collections, each of which would stop a viewer's page

app = st.App(
    Path(__file__).with_name("app.py"),
    secrets=streamlit_secrets(DashboardSettings()),
    routes=sign_in.ROUTES,
    middleware=[Middleware(sign_in.Gate)],
    on_script_error=_said,
)
