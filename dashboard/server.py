"""The server of `python -m dashboard`: Streamlit's pages (`app.py`), and a few addresses of its own."""

import gc
import logging
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from dashboard import pages, sign_in
from dashboard.formats import Formats
from dashboard.oidc import streamlit_secrets
from dashboard.plot import Plot
from dashboard.settings import DashboardSettings
from dashboard.states import show_surprise
from dashboard.table import Table

log = logging.getLogger(__name__)


def _load() -> None:
    """Load what pages are made with, and what that loads when it is first used: the first viewer would wait for it."""
    table, formats = Table({"pages": [page.title for page in pages.PAGES]}).as_arrow(), Formats()
    drawn = len(Plot().add_bar(x=[datetime.now(UTC)], y=[0]).as_json())
    loaded = f"{formats.count(table.num_rows + drawn)} {formats.money(Decimal(0))} {formats.moment(datetime.now(UTC))}"
    log.debug("pages_loaded %s", loaded)


def _said(error: Exception) -> bool:
    """Return whether a page failed, without what failed: that is in the log. True: Streamlit adds nothing."""
    log.error("page_failed error=%s", type(error).__name__, exc_info=error)
    show_surprise()
    return True


_load()
gc.collect()
gc.freeze()  # what was imported stays: out of the sight of collections, each of which would stop a viewer's page

app = st.App(
    Path(__file__).with_name("app.py"),
    secrets=streamlit_secrets(DashboardSettings()),
    routes=sign_in.ROUTES,
    middleware=[Middleware(sign_in.Gate)],
    on_script_error=_said,
)
