"""The server of `python -m dashboard`: Streamlit's pages (`app.py`), and the paths for signing in and out."""

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
    """Import and use the libraries that pages need, so that the first viewer does not wait for their lazy imports."""
    table, formats = Table({"pages": [page.title for page in pages.PAGES]}).as_arrow(), Formats()
    drawn = len(Plot().add_bar(x=[datetime.now(UTC)], y=[0]).as_json())
    loaded = f"{formats.count(table.num_rows + drawn)} {formats.money(Decimal(0))} {formats.moment(datetime.now(UTC))}"
    log.debug("pages_loaded %s", loaded)


def _said(error: Exception) -> bool:
    """Show that a page failed, without details, which are in the log. Returns True: Streamlit shows nothing more."""
    log.error("page_failed error=%s", type(error).__name__, exc_info=error)
    show_surprise()
    return True


_load()
gc.collect()
gc.freeze()  # exclude imported objects from garbage collection, which would pause viewers' pages

app = st.App(
    Path(__file__).with_name("app.py"),
    secrets=streamlit_secrets(DashboardSettings()),
    routes=sign_in.ROUTES,
    middleware=[Middleware(sign_in.Gate)],
    on_script_error=_said,
)
