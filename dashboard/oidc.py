"""Sign-in with an identity provider (OIDC): Streamlit's login calls it, the control plane verifies the ID token.

The login ends in a page run, which cannot set a cookie. So the run stores the session token under a ticket (valid
once, for half a minute) and redirects the browser to a URL that sets the cookie.
"""

import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs

import streamlit as st
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from contracts.errors import TollkeeperError
from dashboard.control_plane import ControlPlane
from dashboard.reader import control_connections, settings
from dashboard.reader import secrets as secret_files
from dashboard.settings import DashboardSettings
from dashboard.states import escaped

START_PARAMETER: Final = "signing_in"
PROVIDER_COOKIE: Final = "_streamlit_user"  # Streamlit's cookie: present after the provider has redirected back
START_COOKIE: Final = "tollkeeper_signing_in"  # a page's WebSocket request does not have the page's parameters
TICKET_PATH: Final = "/sign-in/ticket"
_TICKET_SECONDS: Final = 30.0
_MAX_TICKETS: Final = 1_000
_START_SECONDS: Final = 600


class Tickets:
    """Session tokens that wait to be set as a cookie, by single-use ticket. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[float, str]] = {}

    def leave(self, token: str) -> str:
        """Store a session token and return its ticket."""
        ticket = secrets.token_urlsafe(32)
        with self._lock:
            now = self._clock()
            self._waiting = {key: kept for key, kept in self._waiting.items() if kept[0] > now}
            if len(self._waiting) >= _MAX_TICKETS:
                self._waiting.clear()  # if full, all tickets are dropped; their users must sign in again
            self._waiting[ticket] = (now + _TICKET_SECONDS, token)
        return ticket

    def take(self, ticket: str) -> str | None:
        """Return a ticket's session token and delete it; `None` if the ticket is unknown, used or expired."""
        with self._lock:
            until, token = self._waiting.pop(ticket, (0.0, ""))
        return token if token and until > self._clock() else None


@st.cache_resource(show_spinner=False)
def tickets() -> Tickets:
    """Return this process's `Tickets`."""
    return Tickets()


def streamlit_secrets(chosen: DashboardSettings) -> dict[str, Any]:
    """Return Streamlit's login settings for the identity provider; {} if none is configured."""
    if not chosen.oidc_metadata_url:
        return {}
    secret = "" if chosen.oidc_client_secret is None else chosen.oidc_client_secret.get_secret_value()
    address = chosen.dashboard_url.rstrip("/") or f"http://127.0.0.1:{chosen.dashboard_port}"
    return {
        "auth": {
            "redirect_uri": f"{address}/oauth2callback",
            "cookie_secret": secret_files().get_or_create("dashboard_cookie"),
            "client_id": chosen.oidc_client_id,
            "client_secret": secret,
            "server_metadata_url": chosen.oidc_metadata_url,
            "expose_tokens": ["id"],
        }
    }


def is_signing_in(parameters: str, cookies: dict[str, str]) -> bool:
    """Return whether a page may load without a session, because a provider's login is starting or in progress."""
    return bool(settings().oidc_metadata_url) and (_is_start(parameters) or PROVIDER_COOKIE in cookies)


def is_run_signing_in(cookies: dict[str, str]) -> bool:
    """Return whether a page run may start without a session, because a provider's login is in progress."""
    return bool(settings().oidc_metadata_url) and (START_COOKIE in cookies or PROVIDER_COOKIE in cookies)


def start_headers(parameters: str) -> list[tuple[bytes, bytes]]:
    """Return the cookie header that lets a page's run start a login; [] if the URL does not start one."""
    if not settings().oidc_metadata_url or not _is_start(parameters):
        return []
    cookie = f"{START_COOKIE}=1; Max-Age={_START_SECONDS}; Path=/; HttpOnly; SameSite=lax"
    return [(b"set-cookie", cookie.encode())]


def _is_start(parameters: str) -> bool:
    return START_PARAMETER in parse_qs(parameters, keep_blank_values=True)


def go_on_signing_in() -> bool:
    """Start or finish a provider's login in this page run; return whether there was one."""
    if not settings().oidc_metadata_url:
        return False
    wants_anew = START_PARAMETER in st.query_params
    token = st.user.tokens.get("id") if st.user.is_logged_in and not wants_anew else None
    if token is None:
        if wants_anew:
            st.login()
        return wants_anew
    body = {"id_token": token, "hours": settings().dashboard_session_hours, "address": st.context.ip_address or ""}
    try:
        begun = ControlPlane(control_connections(), None).post("/sign-in/oidc", body)
    except TollkeeperError as error:
        with st.container(border=True):
            st.markdown("#### You could not be signed in")
            st.markdown(escaped(error.message[:1].upper() + error.message[1:] + "."))
            st.html(f'<a href="/?{START_PARAMETER}=1" target="_self">Sign in again</a>')
        return True
    ticket = tickets().leave(str(begun["token"]))
    st.html(f"<script>window.location.replace('{TICKET_PATH}?t={ticket}')</script>", unsafe_allow_javascript=True)
    return True


def take_ticket(request: Request, with_session: Callable[[Request, Response, str], Response]) -> Response:
    """Exchange the ticket in the URL for a session cookie. Requests from other sites' links are refused."""
    is_ours = request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
    token = tickets().take(request.query_params.get("t", "")) if is_ours else None
    if token is None:
        return RedirectResponse("/sign-in", status_code=303)
    return with_session(request, RedirectResponse("/", status_code=303), token)
