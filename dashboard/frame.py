"""The frame around every page: sign-in check, navigation, title, filter bar, refresh, and error messages."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html import escape
from typing import Final

import streamlit as st

from contracts.errors import InvalidRequest, PermissionDenied, TollkeeperError
from dashboard import address, states
from dashboard.filter_bar import WHOSE, Who, filter_bar
from dashboard.filters import MONTHS, Filters, read_filters
from dashboard.formats import Formats
from dashboard.oidc import go_on_signing_in
from dashboard.page import Page
from dashboard.reader import settings
from dashboard.share import share_menu
from dashboard.slow_answers import slow_answers
from dashboard.viewer import Viewer
from dashboard.viewer_identity import identify_viewer
from dashboard.visit import CHOICE_SECONDS, MISS_SECONDS, REFRESH_SECONDS, Visit, now_of, seen_by

log = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 1.0  # wait for pending queries, before the browser is told to ask again
_SLOW_POLL_SECONDS: Final = 1.5
_BESIDE_POLL_SECONDS: Final = 3.0
_MOMENT_KEY: Final = "frame_moment"  # session key: the time that all queries of a redrawn page use
_AHEAD_KEY: Final = "frame_ahead"  # session key: the hour whose queries were started ahead
_SKELETON_PIXELS: Final = 320
# Overrides of Streamlit's style: five times narrower side margins; columns as wide as their contents; readable text
# on buttons in dark mode, and for links and code in captions; no fading of elements while a page is redrawn, which
# can take seconds on a busy machine.
STYLE: Final = """<style>
[data-testid="stMainBlockContainer"] { padding-left: 2rem; padding-right: 2rem; max-width: 1760px; }
[class*="st-key-figures_"] [data-testid="stHorizontalBlock"] { flex-wrap: wrap; }
[class*="st-key-figures_"] [data-testid="stColumn"] { flex: 1 1 8.75rem; min-width: 8.75rem; }
[data-testid="stMetricDelta"] { height: auto; border-radius: 0.8rem; }
:is([data-testid="stMetricLabel"], [data-testid="stMetricDelta"]) :is(.stMarkdownEllipsis, p) {
  white-space: normal !important; overflow-wrap: anywhere;
}
[data-testid="stCaptionContainer"] :is(a, code) { color: inherit; }
[data-testid^="stBaseButton-primary"], [data-testid^="stBaseButton-primary"] p { color: light-dark(#fff, #0f141b); }
[data-stale="true"] { opacity: 1 !important; transition: none !important; }
</style>"""
Offered = dict[Who, list[str]]


def run(pages: Sequence[Page]) -> None:
    """Draw the page that the URL names for the current viewer; the first page if it names none."""
    try:
        viewer = identify_viewer()
    except TollkeeperError as error:
        states.show_failure(error)
        return
    if viewer is None:
        if not go_on_signing_in():
            states.show_signed_out()
        return
    first = next((page for page in pages if viewer.role in page.roles), pages[0])
    made = {
        page.path: st.Page(
            _drawer(page, viewer), title=page.title, icon=page.icon, url_path=page.path, default=page is first
        )
        for page in pages
    }
    address.remember_pages(made)
    chosen = st.navigation(list(made.values()), position="hidden")
    with st.sidebar:
        _navigation([page for page in pages if viewer.role in page.roles], viewer)
    chosen.run()
    _begin_others(pages, viewer)


def _begin_others(pages: Sequence[Page], viewer: Viewer) -> None:
    """Start slow queries of pages that the viewer may open next, once an hour, so that these pages open fast."""
    now = datetime.now(UTC)
    hour = now.replace(minute=0, second=0, microsecond=0)
    if st.session_state.get(_AHEAD_KEY) == hour:
        return
    st.session_state[_AHEAD_KEY] = hour
    for page in pages:
        if page.ahead is not None and viewer.role in page.roles:
            try:
                page.ahead(visit_of(page, viewer, Filters(), now))
            except TollkeeperError as error:
                log.debug("page_not_read_ahead page=%s error=%s", page.path, error.error_code)


def _drawer(page: Page, viewer: Viewer) -> Callable[[], None]:
    def draw() -> None:
        st.set_page_config(page_title=f"{page.title} · Tollkeeper")
        _draw(page, viewer)

    draw.__name__ = page.path
    return draw


def _navigation(pages: Sequence[Page], viewer: Viewer) -> None:
    for page in pages:
        address.page_link(page.path, page.title, icon=page.icon)
    sign_out = "" if viewer.is_local else '<br><a href="/sign-out" target="_self">Sign out</a>'
    st.html(
        f"{STYLE}"
        '<div style="font-size:0.86rem;line-height:1.6;margin-top:0.75rem;padding-top:0.75rem;'
        'border-top:1px solid color-mix(in srgb, currentColor 15%, transparent)">'
        f"<strong>{escape(viewer.name)}</strong><br>{escape(viewer.standing)}{sign_out}</div>"
    )


def _draw(page: Page, viewer: Viewer) -> None:
    """Draw one page: title and filter bar once, its contents repeatedly while its range is relative to now."""
    if viewer.role not in page.roles:
        states.show_forbidden(
            PermissionDenied(f"the page {page.title} is not available to your role ({viewer.standing})")
        )
        return
    try:
        filters, problem = _filters_of(page), None
    except InvalidRequest as error:
        filters, problem = Filters(), error
    offered = _offered(page, viewer, filters)
    if _unknown(page, filters, offered) is not None:  # the cached list may be older than the value in the URL
        offered = _offered(page, viewer, filters, MISS_SECONDS)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.html(
            f'<h1 style="margin:0;padding:0;font-size:1.5rem" title="{escape(page.about)}">{escape(page.title)}</h1>',
            width="content",
        )
        with st.container(horizontal=True, vertical_alignment="center", width="content", gap="small"):
            filter_bar(page.filters, filters, viewer, offered or {}, months="compare" in page.filters)
            share_menu(filters, viewer)
    if problem is not None:
        states.show_invalid(problem)
        return
    unknown = _unknown(page, filters, offered)
    if unknown is not None:
        states.show_unknown(*unknown)
        return
    rhythm = REFRESH_SECONDS.get(filters.range) if page.is_live else None
    st.fragment(_contents, run_every=rhythm)(page, viewer, _Bar(filters, offered), rhythm, [])


@dataclass(frozen=True, slots=True)
class _Bar:
    """The state that the filter bar was drawn from."""

    filters: Filters
    offered: Offered | None

    def is_stale(self, page: Page, viewer: Viewer, filters: Filters) -> bool:
        """Return whether the bar must be redrawn: filters changed below it, or the store has new tenants or is back."""
        return replace(filters, by=self.filters.by) != self.filters or _offered(page, viewer, filters) != self.offered


def _contents(page: Page, viewer: Viewer, bar: _Bar, rhythm: int | None, drawn: list[datetime]) -> None:
    """Draw the page's contents as of now, or the reason why it has none.

    Reads the URL again, because a control within this fragment changes it without a run of the whole page. `drawn`
    holds the time of the fragment's previous run.
    """
    clock = st.session_state.pop(_MOMENT_KEY, None) or datetime.now(UTC)
    drawn.append(clock)
    slow_answers().begin_page()
    try:
        filters = _filters_of(page)
        # If the session has ended or its role has changed, the whole page is drawn again, or the sign-in.
        if drawn[1:] and (identify_viewer() != viewer or bar.is_stale(page, viewer, filters)):
            st.rerun()
        visit = visit_of(page, viewer, filters, clock)
        with _skeleton(is_refresh=len(drawn) > 1):
            page.draw(visit)
    except TollkeeperError as error:
        states.show_failure(error, rhythm)
    _wait(clock, is_refresh=len(drawn) > 1)


def _wait(clock: datetime, *, is_refresh: bool) -> None:
    """Redraw the page, with the same time, when a pending query is done; after one second let the browser poll."""
    slow, breath = slow_answers(), st.empty()
    if slow.page_waits and slow.await_page(_PATIENCE_SECONDS, breath.empty):  # a click ends the run here
        st.session_state[_MOMENT_KEY] = clock
        st.rerun(scope="fragment" if is_refresh else "app")
    if slow.page_waits or slow.page_waits_beside:
        st.fragment(_look_again, run_every=_SLOW_POLL_SECONDS if slow.page_waits else _BESIDE_POLL_SECONDS)([])


@contextmanager
def _skeleton(*, is_refresh: bool) -> Iterator[None]:
    """Show a skeleton if nothing was drawn after half a second. On a refresh its place stays empty, because the browser
    identifies elements by position.
    """
    if is_refresh:
        st.empty()
        yield
        return
    with st.skeleton(height=_SKELETON_PIXELS):
        yield


def _look_again(drawn: list[bool]) -> None:
    """Redraw the page after a moment, because a background query was not done yet."""
    drawn.append(True)
    if len(drawn) > 1:
        st.rerun()


def visit_of(page: Page, viewer: Viewer, filters: Filters, clock: datetime) -> Visit:
    """Return the `Visit` for a time. Raises InvalidRequest for an invalid range, NotFound for an invisible tenant."""
    now = now_of(filters, clock)
    scope = filters.scope(now, viewer.zone, viewer.access)
    rate = settings().dashboard_usd_rate
    formats = Formats(viewer.locale, viewer.zone, viewer.currency, rate)
    return Visit(page, viewer, filters, now, scope, filters.before(scope), formats)


def _filters_of(page: Page) -> Filters:
    """Parse the filters that the page uses; other pages' filters in the URL are ignored."""
    asked = st.query_params.to_dict()
    dropped = {name for name in (*WHOSE, "compare") if name not in page.filters}
    if "range" not in page.filters:
        dropped |= {"range", "from", "to"}
    elif asked.get("range") in MONTHS and "compare" not in page.filters:
        asked["range"] = "30d"  # the nearest range that this page offers
    asked = {name: value for name, value in asked.items() if name not in dropped}
    if not {"range", "from", "to"}.intersection(asked):
        asked["range"] = page.default_range
    return read_filters(asked)


def _offered(page: Page, viewer: Viewer, filters: Filters, seconds: float = CHOICE_SECONDS) -> Offered | None:
    """Return the options of the bar's filters; `None` if the store does not answer, which the page reports."""
    now = datetime.now(UTC)
    tenant = viewer.tenant or filters.tenant
    found: Offered = {}
    try:
        for name, (_, kind) in WHOSE.items():
            if name in page.filters:
                own = None if name in ("tenant", "model") and viewer.team is None else tenant
                found[name] = [seen.value for seen in seen_by(viewer, kind, own, now, seconds)]
    except TollkeeperError:
        return None
    return found


def _unknown(page: Page, filters: Filters, offered: Offered | None) -> tuple[str, str] | None:
    """Return the first filter, with its value, that no recorded request has; `None` if there is none."""
    for name in WHOSE:
        value = getattr(filters, name)
        if offered is not None and value is not None and name in page.filters and value not in offered[name]:
            return name, value
    return None
