"""Identify the viewer: by a session cookie, or as a local user of the dashboard's machine."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import streamlit as st

from analytics.reach import EVERYTHING, Reach
from contracts.control import Role
from contracts.errors import AuthenticationFailed
from dashboard.control_plane import ControlPlane
from dashboard.preferences import COOKIE, Preferences, locale_of, zone_of
from dashboard.reader import control_answers, control_connections, secrets, settings
from dashboard.viewer import Viewer

SESSION_COOKIE: Final = "tollkeeper_session"
PREFERENCES_KEY: Final = "preferences"  # of this session: chosen on the page, before the cookie comes back
_CHECKED_SECONDS: Final = 5.0  # how long a session that was ended elsewhere may go on here
# What a proxy adds: a request that has one of these came from elsewhere, though the connection is from here.
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")


def arrive() -> Viewer | None:
    """Return the viewer of this page run; `None` if they must sign in first.

    A session goes before sitting at this machine, so that a person may look at what another sees. Raises
    ControlUnavailable where a session cannot be checked.
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
    """Return whether who sent a request needs no account.

    So it is where the dashboard listens on a loopback address alone and no setting speaks of others, nothing forwarded
    the request, and a page of its own under a loopback name sent it: no other site's page (DNS rebinding), no page of
    another port and no proxy on this machine lets others in, but for a proxy that is named nowhere and hides itself.
    """
    if not settings().is_for_this_machine:
        return False
    headers = {name.lower(): value for name, value in all_headers.items()}
    if any(name in headers for name in _FORWARDED) or not is_from_own_page(headers):
        return False
    return "host" not in headers or _is_loopback_name(headers["host"])


def is_from_own_page(headers: Mapping[str, str]) -> bool:
    """Return whether no page but this dashboard's own sent a request: another port of this machine is another's page.

    Programs name no origin; browsers do with every WebSocket.
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
    return value if isinstance(value, str) else ""  # outside of a server Streamlit hands out something else


def _of_session(token: str) -> Viewer:
    plane = ControlPlane(control_connections(), token)
    found: dict[str, Any] = control_answers().get(
        ("session", token), _CHECKED_SECONDS, lambda: plane.get("/v1/sessions/current")
    )
    reach = Reach(found["tenant_id"] or None, found["team_id"] or None)
    return _dressed(Viewer(str(found["name"]), Role(found["role"]), reach, token))


def _dressed(viewer: Viewer) -> Viewer:
    """Add how numbers and times are written for this viewer: as they chose, else as their browser says."""
    chosen: Preferences = st.session_state.get(PREFERENCES_KEY) or Preferences.of_cookie(_cookie(COOKIE))
    zone: ZoneInfo = zone_of(chosen.zone, st.context.timezone)
    locale = locale_of(chosen.locale, settings().dashboard_locale, st.context.locale)
    shown = settings().dashboard_currency
    currency = "USD" if chosen.currency == "USD" else shown
    return Viewer(
        viewer.name, viewer.role, viewer.reach, viewer.token, zone, locale, currency, is_local=viewer.is_local
    )
