"""The way in: a real control plane behind the sign-in page, the cookie it leads to, and the gate that asks for it."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest
import uvicorn
from argon2 import PasswordHasher
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from backends.secrets import passwords
from backends.secrets.secret_files import SecretFiles
from dashboard import oidc, sign_in
from dashboard.control_plane import ControlPlane, open_client
from dashboard.reader import control_connections
from dashboard.settings import DashboardSettings
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings
from migrations.database import migrate_database
from tests.ports import find_free_port
from tests.steady_time import poll_within

PASSWORD: Final = "correct horse battery"
HTML: Final = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A control plane on a port, with the account ada@example.com; provide its URL and data directory."""
    data = tmp_path_factory.mktemp("control")
    url = f"sqlite:///{data / 'control.db'}"
    migrate_database(url, say=lambda line: None)
    port = find_free_port()
    app = create_app(ControlSettings(data=data, database_url=url))
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    hasher, quick = passwords._hasher, PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    passwords._hasher = lambda: quick  # type: ignore[assignment]  # the time a hash takes is not tested here
    thread.start()
    assert poll_within(lambda: server.started, 30)
    address = f"http://127.0.0.1:{port}"
    body = {"email": "ada@example.com", "name": "Ada", "role": "finance", "password": PASSWORD}
    with open_client(address) as connections:
        ControlPlane(connections, SecretFiles(data / "secrets").get("admin_token")).post("/v1/accounts", body)
    yield address, data
    server.should_exit = True
    thread.join(30)
    passwords._hasher = hasher


@pytest.fixture
def browser(control_plane: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A browser at the sign-in's addresses and its gate, before pages that everybody may not see."""
    monkeypatch.setenv("TOLLKEEPER_CONTROL_URL", control_plane[0])
    monkeypatch.setenv("TOLLKEEPER_DATA", str(control_plane[1]))
    monkeypatch.setenv("TOLLKEEPER_DASHBOARD_SIGN_IN", "always")

    async def page(request: Request) -> Response:
        return PlainTextResponse("a page")

    async def run(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    all_methods = ["GET", "PUT", "DELETE"]
    routes = [*sign_in.ROUTES, WebSocketRoute("/_stcore/stream", run), Route("/{path:path}", page, methods=all_methods)]
    app = Starlette(routes=routes, middleware=[Middleware(sign_in.Gate)])
    with TestClient(app, base_url="http://dash.example", follow_redirects=False) as client:
        yield client
    control_connections().close()


def come_in(browser: TestClient, **fields: str) -> Any:
    form = {"email": "ada@example.com", "password": PASSWORD, "next": "/costs?range=7d", **fields}
    return browser.post("/sign-in", data=form, headers=HTML)


def gets_numbers(browser: TestClient, origin: str = "http://dash.example") -> bool:
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    headers = {"Host": "dash.example", "Origin": origin, **({"Cookie": cookies} if cookies else {})}
    try:
        with browser.websocket_connect("/_stcore/stream", headers=headers):
            return True
    except WebSocketDisconnect:
        return False


def test_who_has_not_signed_in_is_led_to_the_sign_in_and_back(browser: TestClient) -> None:
    led = browser.get("/costs?tenant=acme&range=7d", headers=HTML)
    assert led.status_code == 303
    place = urlsplit(led.headers["location"])
    assert place.path == "/sign-in"
    next_path = parse_qs(place.query)["next"][0]
    assert next_path == "/costs?tenant=acme&range=7d"
    assert 'value="/costs?tenant=acme&amp;range=7d"' in browser.get(led.headers["location"]).text
    back = come_in(browser, next=next_path)
    assert (back.status_code, back.headers["location"]) == (303, next_path)
    assert browser.get(next_path, headers=HTML).text == "a page"


def test_files_and_numbers_are_refused_without_a_session(browser: TestClient) -> None:
    assert browser.get("/media/0123.csv").status_code == 401
    assert browser.get("/_stcore/upload_file/x/y").status_code == 401
    assert browser.get("/_stcore/health").text == "a page"


def test_no_page_s_run_begins_without_a_session_or_for_another_site(browser: TestClient) -> None:
    assert not gets_numbers(browser)
    browser.cookies.set("tollkeeper_session", "nonsense", domain="dash.example")
    assert not gets_numbers(browser)
    browser.cookies.clear()
    come_in(browser)
    assert gets_numbers(browser)
    assert not gets_numbers(browser, origin="http://dash.example:3000")


def test_nobody_uploads_anything(browser: TestClient) -> None:
    come_in(browser)
    assert browser.put("/_stcore/upload_file/x/y").status_code == 403


@pytest.mark.parametrize("way", ["/?signing_in=1", "cookie"])
def test_a_login_at_the_provider_opens_pages_and_their_runs_and_nothing_else(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    chosen = DashboardSettings(oidc_metadata_url="https://idp.example")
    monkeypatch.setattr(oidc, "settings", lambda: chosen)
    assert browser.get("/?not_signing_in", headers=HTML).status_code == 303 and not gets_numbers(browser)
    if way == "cookie":
        browser.cookies.set("_streamlit_user", "junk", domain="dash.example")
    assert browser.get("/?signing_in=1" if way != "cookie" else "/", headers=HTML).text == "a page"
    assert gets_numbers(browser)
    for path in ("/media/0123.csv", "/_stcore/metrics", "/_stcore/upload_file/x/y"):
        assert browser.get(f"{path}?signing_in=1").status_code == 401
    for call in (browser.put, browser.delete):
        assert call("/_stcore/upload_file/x/y?signing_in=1").status_code == 401
        assert call("/?signing_in=1").status_code == 401


def test_where_the_control_plane_is_away_a_page_says_so_and_files_stay_closed(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.cookies.set("tollkeeper_session", "nonsense", domain="dash.example")
    with open_client(f"http://127.0.0.1:{find_free_port()}") as nobody:
        monkeypatch.setattr(sign_in, "control_connections", lambda: nobody)
        assert browser.get("/costs", headers=HTML).text == "a page" and gets_numbers(browser)
        assert browser.get("/media/0123.csv").status_code == 401
        assert browser.get("/_stcore/metrics").status_code == 401


def test_the_session_s_cookie_is_not_for_scripts_nor_for_other_sites(browser: TestClient) -> None:
    cookie = come_in(browser).headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie and "path=/" in cookie and "max-age=43200" in cookie
    assert "secure" not in cookie  # over plain HTTP a browser would drop it
    headers = {**HTML, "X-Forwarded-Proto": "https"}
    form = {"email": "ada@example.com", "password": PASSWORD}
    assert "secure" in browser.post("/sign-in", data=form, headers=headers).headers["set-cookie"].lower()


def test_a_wrong_password_is_said_on_the_page_and_sets_nothing(browser: TestClient) -> None:
    said = come_in(browser, password="<b>not the password</b>")
    assert said.status_code == 401 and "set-cookie" not in said.headers
    assert "E-mail address or password is wrong" in said.text and "not the password" not in said.text
    assert 'value="ada@example.com"' in said.text


@pytest.mark.parametrize("elsewhere", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/a\nb"])
def test_a_link_does_not_lead_out_of_the_dashboard(browser: TestClient, elsewhere: str) -> None:
    assert come_in(browser, next=elsewhere).headers["location"] == "/"


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}]
)
def test_another_site_s_form_signs_nobody_in(browser: TestClient, headers: dict[str, str]) -> None:
    form = {"email": "ada@example.com", "password": PASSWORD}
    refused = browser.post("/sign-in", data=form, headers=headers)
    assert refused.status_code == 403 and "set-cookie" not in refused.headers


@pytest.mark.parametrize(
    ("trusted", "forwarded", "caller"),
    [
        ("", "192.0.2.9", "10.0.0.1"),  # nobody is believed unless told so
        ("10.0.0.0/8", "192.0.2.9", "192.0.2.9"),
        ("10.0.0.0/8", "evil, 192.0.2.9", "192.0.2.9"),
        ("10.0.0.0/8", "", "10.0.0.1"),
        ("198.51.100.0/24", "192.0.2.9", "10.0.0.1"),
    ],
)
def test_guesses_are_counted_where_the_browser_is(
    monkeypatch: pytest.MonkeyPatch, trusted: str, forwarded: str, caller: str
) -> None:
    monkeypatch.setattr(sign_in, "settings", lambda: DashboardSettings(trusted_proxies=trusted))
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    request = Request({"type": "http", "headers": headers, "client": ("10.0.0.1", 4711)})
    assert sign_in._caller_of(request) == caller


def test_a_form_that_is_too_large_is_not_read(browser: TestClient) -> None:
    assert browser.post("/sign-in", data={"email": "x" * 5_000}, headers=HTML).status_code == 413


def test_signing_out_ends_the_session_for_whoever_has_its_cookie(browser: TestClient) -> None:
    come_in(browser)
    kept = dict(browser.cookies)
    out = browser.get("/sign-out", headers=HTML)
    assert (out.status_code, out.headers["location"]) == (303, "/sign-in")
    assert not browser.cookies
    for name, value in kept.items():
        browser.cookies.set(name, value, domain="dash.example")
    assert browser.get("/costs", headers=HTML).status_code == 303


def test_another_site_s_link_signs_nobody_out(browser: TestClient) -> None:
    come_in(browser)
    led = browser.get("/sign-out", headers={**HTML, "Sec-Fetch-Site": "cross-site"})
    assert led.headers["location"] == "/" and "set-cookie" not in led.headers
    assert browser.get("/costs", headers=HTML).status_code == 200


@pytest.mark.parametrize("cookie", ["nonsense", "tk-session-" + "A" * 43, "tk-admin-" + "A" * 43, ""])
def test_a_made_up_cookie_opens_nothing(browser: TestClient, cookie: str) -> None:
    browser.cookies.set("tollkeeper_session", cookie, domain="dash.example")
    assert browser.get("/costs", headers=HTML).status_code == 303


def test_no_other_site_shows_a_page_within_its_own(browser: TestClient) -> None:
    come_in(browser)
    page = browser.get("/costs", headers=HTML)
    assert page.headers["content-security-policy"] == "frame-ancestors 'self'"
    assert page.headers["referrer-policy"] == "same-origin"


def test_the_page_runs_nothing_that_the_address_or_the_form_brings(browser: TestClient) -> None:
    evil = '"><script>alert(1)</script>'
    page = browser.get("/sign-in", params={"next": f"/{evil}"})
    assert "<script>" not in page.text and "default-src 'none'" in page.headers["content-security-policy"]
    assert "<script>" not in come_in(browser, email=evil).text


def test_a_ticket_becomes_a_cookie_once_and_not_from_another_site(browser: TestClient) -> None:
    token = come_in(browser).cookies["tollkeeper_session"]
    browser.cookies.clear()
    ticket = oidc.tickets().leave(token)
    assert browser.get(f"/sign-in/ticket?t={ticket}", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 303
    assert not browser.cookies
    taken = browser.get(f"/sign-in/ticket?t={ticket}", headers=HTML)
    assert taken.headers["location"] == "/" and taken.cookies["tollkeeper_session"] == token
    browser.cookies.clear()
    assert browser.get(f"/sign-in/ticket?t={ticket}", headers=HTML).headers["location"] == "/sign-in"
