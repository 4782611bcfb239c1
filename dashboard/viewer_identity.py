"""Identify the viewer: by a session cookie, or as a local user of the dashboard's machine."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import streamlit as st

from analytics.access_scope import EVERYTHING, AccessScope
from contracts.control import Role
from contracts.errors import AuthenticationFailed
from dashboard.control_plane import ControlPlane
from dashboard.preferences import COOKIE, Preferences, locale_of, zone_of
from dashboard.reader import control_answers, control_connections, secrets, settings
from dashboard.viewer import Viewer

SESSION_COOKIE: Final = "tollkeeper_session"
# Key in Streamlit's session state: preferences chosen on the page, until the browser sends the new cookie.
PREFERENCES_KEY: Final = "preferences"
_CHECKED_SECONDS: Final = 5.0  # cache time of a session's check; an ended session may last this much longer
# Headers that proxies add: a request with one of these came from another machine, even over a local connection.
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")


def identify_viewer() -> Viewer | None:
    """Return the viewer of this page run; `None` if they must sign in first.

    A session takes precedence over local access, so that a local user can see what another user sees. Raises
    ControlUnavailable if the session cannot be checked.
    """
    token = _cookie(SESSION_COOKIE)
    if token:
        try:
            return _of_session(token)
        except AuthenticationFailed:
            return None
    if is_at_this_machine(st.context.headers):
        return _dressed(Viewer("this machine", Role.OWNER, EVERYTHING, secrets().get("admin_token"), is_local=True))
    return None


def is_at_this_machine(all_headers: Mapping[str, str]) -> bool:
    """Return whether a request comes from a local user, who needs no account.

    True if the dashboard listens on a loopback address only and no setting names a proxy or public URL, no proxy
    forwarded the request, and its Host and Origin are this dashboard's under a loopback name. So neither other sites'
    pages (DNS rebinding) nor pages of other ports get access. An unconfigured proxy that adds no header is not
    detected.
    """
    if not settings().is_for_this_machine:
        return False
    headers = {name.lower(): value for name, value in all_headers.items()}
    if any(name in headers for name in _FORWARDED) or not is_from_own_page(headers):
        return False
    return "host" not in headers or _is_loopback_name(headers["host"])


def is_from_own_page(headers: Mapping[str, str]) -> bool:
    """Return whether a request has no Origin header or this dashboard's own; another port is another origin.

    Programs send no Origin; browsers send it with every WebSocket.
    """
    return "origin" not in headers or urlsplit(headers["origin"]).netloc == headers.get("host")


def _is_loopback_name(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _cookie(name: str) -> str:
    value = st.context.cookies.get(name)
    return value if isinstance(value, str) else ""  # outside of a server Streamlit returns another type


def _of_session(token: str) -> Viewer:
    plane = ControlPlane(control_connections(), token)
    found: dict[str, Any] = control_answers().get(
        ("session", token), _CHECKED_SECONDS, lambda: plane.get("/v1/sessions/current")
    )
    access = AccessScope(found["tenant_id"] or None, found["team_id"] or None)
    return _dressed(Viewer(str(found["name"]), Role(found["role"]), access, token))


def _dressed(viewer: Viewer) -> Viewer:
    """Return the viewer with locale, time zone and currency: those that they chose, else their browser's."""
    chosen: Preferences = st.session_state.get(PREFERENCES_KEY) or Preferences.of_cookie(_cookie(COOKIE))
    zone: ZoneInfo = zone_of(chosen.zone, st.context.timezone)
    locale = locale_of(chosen.locale, settings().dashboard_locale, st.context.locale)
    shown = settings().dashboard_currency
    currency = "USD" if chosen.currency == "USD" else shown
    return Viewer(
        viewer.name, viewer.role, viewer.access, viewer.token, zone, locale, currency, is_local=viewer.is_local
    )
