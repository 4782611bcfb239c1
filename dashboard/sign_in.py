"""Sign-in and sign-out, the session cookie, and the middleware that requires it."""

from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contracts.errors import TollkeeperError
from dashboard.control_plane import ControlPlane
from dashboard.oidc import (
    PROVIDER_COOKIE,
    TICKET_PATH,
    is_run_signing_in,
    is_signing_in,
    start_headers,
    take_ticket,
)
from dashboard.peer_user import is_another_user
from dashboard.reader import control_answers, control_connections, settings
from dashboard.sign_in_page import sign_in_page
from dashboard.viewer_identity import SESSION_COOKIE, is_at_this_machine, is_from_own_page
from gateway.identity.caller_address import TrustedProxies

_MAX_FORM_BYTES: Final = 4_096
_POLICY_VIOLATION: Final = 1008  # RFC 6455, section 7.4.1
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
# Public paths: static files of the pages, and the health check. They contain no tenant data.
_OPEN: Final = ("/sign-in", "/sign-out", "/static/", "/_stcore/health", "/_stcore/host-config", "/favicon")
_OPEN_TO_PROVIDER: Final = ("/auth/", "/oauth2callback")
_NO_PAGES: Final = ("/_stcore", "/media")  # Streamlit's other paths: its own state, viewers' media files
_UPLOADS: Final = "/_stcore/upload_file"


async def show(request: Request) -> Response:
    """Show the sign-in form."""
    return _page(_inward(request.query_params.get("next")))


async def sign_in(request: Request) -> Response:
    """Check e-mail address and password with the control plane, and set the cookie of the new session."""
    if not _is_from_here(request):
        return PlainTextResponse("this form was sent by another site", status_code=403, headers=_HEADERS)
    body = await _short_body(request)
    if body is None:
        return PlainTextResponse("the form is too large", status_code=413, headers=_HEADERS)
    form = {name: values[0] for name, values in parse_qs(body.decode(errors="replace")).items()}
    email, next_path = form.get("email", ""), _inward(form.get("next"))
    wanted = {
        "email": email[:320],
        "password": form.get("password", "")[:256],
        "hours": settings().dashboard_session_hours,
        "address": _caller_of(request),
    }
    try:
        begun = await run_in_threadpool(ControlPlane(control_connections(), None).post, "/sign-in", wanted)
    except TollkeeperError as error:
        said = error.message[:1].upper() + error.message[1:] + "."
        return _page(next_path, problem=said, email=email[:320], status=error.status)
    return with_session(request, RedirectResponse(next_path, status_code=303), str(begun["token"]))


async def sign_out(request: Request) -> Response:
    """End the session at the control plane and delete its cookie."""
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        # A link on another site must not sign anyone out
        return RedirectResponse("/", status_code=303, headers=_HEADERS)
    token = request.cookies.get(SESSION_COOKIE)
    if token:
        try:
            await run_in_threadpool(ControlPlane(control_connections(), token).delete, "/v1/sessions/current")
        except TollkeeperError:
            pass  # it has ended already or will expire; the cookie is deleted in any case
        control_answers().clear()
    response = RedirectResponse("/sign-in", status_code=303, headers=_HEADERS)
    for name in (SESSION_COOKIE, *(each for each in request.cookies if each.startswith(PROVIDER_COOKIE))):
        response.delete_cookie(name, path="/")
    return response


async def ticket(request: Request) -> Response:
    """Set the cookie of a session that began with an identity provider's login."""
    return take_ticket(request, with_session)


def with_session(request: Request, response: Response, token: str) -> Response:
    """Return the response with the session cookie (HttpOnly, SameSite)."""
    response.headers["Cache-Control"] = "no-store"
    is_https = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    response.set_cookie(
        SESSION_COOKIE,
        token,
        max_age=settings().dashboard_session_hours * 3_600,
        path="/",
        secure=is_https,
        httponly=True,
        samesite="lax",
    )
    return response


class Gate:
    """ASGI middleware: redirects pages to the sign-in without a session, and serves files to signed-in users only.

    Page contents come over the WebSocket, and each page run checks the session again (`arrive`). Uploads are refused.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and not await run_in_threadpool(_may_listen, scope):
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        if scope["type"] != "http" or scope["path"].startswith((*_OPEN, *_OPEN_TO_PROVIDER)):
            await self.app(scope, receive, send)
            return
        if await run_in_threadpool(_may_pass, scope):
            if scope["path"].startswith(_UPLOADS):
                nowhere = PlainTextResponse("uploads are not allowed", status_code=403, headers=_HEADERS)
                await nowhere(scope, receive, send)
                return
            await self.app(scope, receive, _with_headers(send, start_headers(scope["query_string"].decode("latin-1"))))
            return
        if "text/html" in Headers(scope=scope).get("accept", ""):
            query = scope["query_string"].decode("latin-1")
            wanted = quote(scope["path"] + (f"?{query}" if query else ""), safe="/")
            refusal: Response = RedirectResponse(f"/sign-in?next={wanted}", status_code=303, headers=_HEADERS)
        else:
            refusal = PlainTextResponse("sign in first", status_code=401, headers=_HEADERS)
        await refusal(scope, receive, send)


def _with_headers(send: Send, more: list[tuple[bytes, bytes]]) -> Send:
    """Return a `send` that adds security headers: no framing by other sites, and no referrer (URLs name tenants)."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            added = [(b"content-security-policy", b"frame-ancestors 'self'"), (b"referrer-policy", b"same-origin")]
            message = {**message, "headers": [*message.get("headers", []), *added, *more]}
        await send(message)

    return send_with_headers


def _may_pass(scope: Scope) -> bool:
    """Return whether an HTTP request is allowed. Pages may also load while a provider's login is in progress."""
    request = Request(scope)
    is_page = request.method in ("GET", "HEAD") and not scope["path"].startswith(_NO_PAGES)
    if is_page and is_signing_in(request.url.query, request.cookies):
        return True
    return _is_known(request, if_unanswered=is_page)


def _may_listen(scope: Scope) -> bool:
    """Return whether a WebSocket may open. `arrive` checks the session, but cannot see which local user connects."""
    connection = HTTPConnection(scope)
    if not is_from_own_page(connection.headers):
        return False
    return is_run_signing_in(connection.cookies) or _is_known(connection, if_unanswered=True)


def _is_known(connection: HTTPConnection, *, if_unanswered: bool) -> bool:
    """Return whether the caller is a local user or has a session; `if_unanswered` if that cannot be checked."""
    if is_at_this_machine(dict(connection.headers)):
        scope = connection.scope
        if not is_another_user(scope.get("client"), scope.get("server")):
            return True
    token = connection.cookies.get(SESSION_COOKIE)
    if not token:
        return False
    try:
        control_answers().get(
            ("session", token),
            5.0,
            lambda: ControlPlane(control_connections(), token).get("/v1/sessions/current"),
        )
    except TollkeeperError as error:
        return if_unanswered and error.status >= 500
    return True


def _page(next_path: str, *, problem: str = "", email: str = "", status: int = 200) -> Response:
    provider = settings().oidc_name if settings().oidc_metadata_url else ""
    words = sign_in_page(next_path=next_path, problem=problem, email=email, provider=provider)
    return HTMLResponse(words, status_code=status, headers=_HEADERS)


def _is_from_here(request: Request) -> bool:
    """Return whether a form came from this dashboard's page, so that other sites cannot sign a user in (login CSRF)."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site == "same-origin"
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def _caller_of(request: Request) -> str:
    """Return the client's address, for the limit on password attempts; behind a proxy, the forwarded address."""
    peer = request.client.host if request.client else ""
    proxies = TrustedProxies(settings().trusted_proxies)
    return str(proxies.caller_of(peer, request.headers.get("x-forwarded-for", "")) or peer)


def _inward(path: str | None) -> str:
    """Return the path if it is on this dashboard, else "/" (no open redirect)."""
    wanted = path or "/"
    is_inward = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isprintable()
    return wanted if is_inward and not urlsplit(wanted).netloc else "/"


async def _short_body(request: Request) -> bytes | None:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_FORM_BYTES:
            return None
    return body


ROUTES: Final = (
    Route("/sign-in", show, methods=["GET"]),
    Route("/sign-in", sign_in, methods=["POST"]),
    Route("/sign-out", sign_out, methods=["GET"]),
    Route(TICKET_PATH, ticket, methods=["GET"]),
)
