"""Links to the current view. They contain filters and choices, no permissions: others see what their role allows."""

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from contracts.errors import TollkeeperError
from dashboard.filters import Filters, written
from dashboard.viewer import Viewer
from dashboard.visit import now_of


def share_menu(filters: Filters, viewer: Viewer) -> None:
    """Draw the menu with two links: one with the relative time range, one with fixed dates."""
    menu = st.popover(
        "", icon=":material/link:", type="tertiary", help="Share this view", key="share", on_change="rerun"
    )
    if not menu.open:
        return
    with menu:
        st.caption("The link contains the filters. Everyone who opens it sees what their own role allows.")
        st.code(link(st.context.url or "", st.query_params.to_dict()), language=None, wrap_lines=True)
        frozen = _frozen(filters, viewer)
        if frozen:
            st.caption("Link with fixed dates:")
            st.code(link(st.context.url or "", {**st.query_params.to_dict(), **frozen}), language=None, wrap_lines=True)


def link(page_url: str, parameters: Mapping[str, str | None]) -> str:
    """Return the URL of a page with these parameters; `None` and "" are omitted."""
    parts = urlsplit(page_url)
    query = urlencode({name: value for name, value in parameters.items() if value})
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))


def _frozen(filters: Filters, viewer: Viewer) -> dict[str, str | None]:
    """Return parameters that replace a relative range by fixed dates; {} if it is fixed already or invalid."""
    if filters.start is not None:
        return {}
    try:
        scope = filters.scope(now_of(filters, datetime.now(UTC)), viewer.zone, viewer.access)
    except TollkeeperError:
        return {}
    return {"range": None, "from": written(scope.start), "to": written(scope.end)}
