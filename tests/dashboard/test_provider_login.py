"""The whole way through an identity provider: a dashboard in its own process, a control plane, and a provider that
signs; each step as a browser takes it.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from backends.secrets.secret_files import SecretFiles
from bench.streamlit_client import StreamlitViewer
from dashboard.control_plane import ControlPlane, open_client
from dashboard.viewer_identity import SESSION_COOKIE
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings
from migrations.database import migrate_database
from tests.gateway.identity.identity_provider import public_jwk, rsa_key
from tests.ports import find_free_port
from tests.steady_time import poll_within

CLIENT: Final = "tollkeeper-dashboard"
EMAIL: Final = "ada@example.com"
PATIENCE_SECONDS: Final = 120.0


class SigningProvider:
    """An OpenID provider that knows one person and asks for no password."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.email = EMAIL
        self._nonces: dict[str, str] = {}

    def consent(self, asked: str) -> str:
        """Return where the browser is sent back to from the address that it was sent to."""
        wanted = {name: values[0] for name, values in parse_qs(urlsplit(asked).query).items()}
        assert wanted["client_id"] == CLIENT and "openid" in wanted["scope"]
        code = f"code-{len(self._nonces)}"
        self._nonces[code] = wanted.get("nonce", "")
        return f"{wanted['redirect_uri']}?code={code}&state={wanted['state']}"

    async def metadata(self, _: Request) -> Response:
        names = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        signed_by = {"id_token_signing_alg_values_supported": ["RS256"]}
        return JSONResponse(
            {"issuer": self.issuer, **signed_by, **{name: f"{self.issuer}/{path}" for name, path in names.items()}}
        )

    async def keys(self, _: Request) -> Response:
        return JSONResponse({"keys": [public_jwk(rsa_key(), "r1")]})

    async def token(self, request: Request) -> Response:
        code = parse_qs((await request.body()).decode())["code"][0]
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": "ada", "iat": now, "exp": now + 600, "email": self.email}
        signed = jwt.encode({**claims, "nonce": self._nonces.pop(code)}, rsa_key(), "RS256", headers={"kid": "r1"})
        return JSONResponse({"access_token": "none", "token_type": "Bearer", "expires_in": 600, "id_token": signed})

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.metadata),
                Route("/keys", self.keys),
                Route("/token", self.token, methods=["POST"]),
            ]
        )


@contextmanager
def served(app: Any, port: int) -> Iterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    assert poll_within(lambda: server.started, PATIENCE_SECONDS)
    yield
    server.should_exit = True
    thread.join(PATIENCE_SECONDS)


@contextmanager
def dashboard_process(variables: dict[str, str], port: int) -> Iterator[None]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
    process = subprocess.Popen([sys.executable, "-m", "dashboard"], env=kept | variables, stderr=subprocess.DEVNULL)

    def is_well() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/_stcore/health", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    try:
        assert poll_within(is_well, PATIENCE_SECONDS)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[tuple[int, SigningProvider]]:
    """A dashboard that asks a provider, on a port; the account ada@example.com is a finance role's."""
    ports = [find_free_port() for _ in range(3)]
    provider = SigningProvider(f"http://127.0.0.1:{ports[0]}")
    metadata = f"{provider.issuer}/.well-known/openid-configuration"
    url = f"sqlite:///{tmp_path / 'control.db'}"
    migrate_database(url, say=lambda line: None)
    settings = ControlSettings(data=tmp_path, database_url=url, oidc_metadata_url=metadata, oidc_client_id=CLIENT)
    control = f"http://127.0.0.1:{ports[1]}"
    variables = {
        "TOLLKEEPER_DATA": str(tmp_path),
        "TOLLKEEPER_CONTROL_URL": control,
        "TOLLKEEPER_STORE_URL": "http://127.0.0.1:1",
        "TOLLKEEPER_DASHBOARD_PORT": str(ports[2]),
        "TOLLKEEPER_DASHBOARD_URL": f"http://127.0.0.1:{ports[2]}",
        "TOLLKEEPER_OIDC_METADATA_URL": metadata,
        "TOLLKEEPER_OIDC_CLIENT_ID": CLIENT,
        "TOLLKEEPER_OIDC_CLIENT_SECRET": "not looked at",
    }
    with served(provider.app(), ports[0]), served(create_app(settings), ports[1]):
        body = {"email": EMAIL, "name": "Ada", "role": "finance", "password": None}
        with open_client(control) as connections:
            token = SecretFiles(tmp_path / "secrets").get("admin_token")
            ControlPlane(connections, token).post("/v1/accounts", {k: v for k, v in body.items() if v is not None})
        with dashboard_process(variables, ports[2]):
            yield ports[2], provider


def header(browser: httpx.Client) -> str:
    return "; ".join(f"{name}={value}" for name, value in browser.cookies.items())


def came_back(browser: httpx.Client, port: int, provider: SigningProvider) -> str:
    """Sign in at the provider from the dashboard's first page on; return what the page says to who comes back."""
    page = browser.get("/?signing_in=1", headers={"Accept": "text/html"})
    assert page.status_code == 200
    with StreamlitViewer(port, header(browser)) as viewer:
        (asked,) = [line for line in viewer.open(signing_in="1").words.splitlines() if line.startswith("AUTH ")]
    there = browser.get(asked.removeprefix("AUTH "))
    assert there.status_code in (302, 303, 307) and there.headers["location"].startswith(provider.issuer)
    back = browser.get(provider.consent(there.headers["location"]))
    assert back.status_code in (302, 303, 307)
    browser.get("/_stcore/health")  # which the page asks first, and which sets the cookie against forged requests
    with StreamlitViewer(port, header(browser), xsrf_token=browser.cookies["_streamlit_xsrf"]) as viewer:
        return viewer.open().words


def test_who_the_provider_vouches_for_is_signed_in_and_nobody_else(
    installation: tuple[int, SigningProvider],
) -> None:
    port, provider = installation
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS) as browser:
        refused = browser.get("/", headers={"Accept": "text/html"})
        assert refused.status_code == 303 and refused.headers["location"].startswith("/sign-in")
        said = came_back(browser, port, provider)
        ticket = said.partition("/sign-in/ticket?t=")[2].partition("'")[0]
        taken = browser.get("/sign-in/ticket", params={"t": ticket})
        assert taken.headers["location"] == "/", said
        assert SESSION_COOKIE in browser.cookies
        with StreamlitViewer(port, f"{SESSION_COOKIE}={browser.cookies[SESSION_COOKIE]}") as viewer:
            words = viewer.open().words
            assert "<br>finance" in words and "Sign out" in words
        assert browser.get("/sign-in/ticket", params={"t": ticket}).headers["location"] == "/sign-in", "good once"
    provider.email = "eve@example.com"
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS) as browser:
        said = came_back(browser, port, provider)
        assert "You could not be signed in" in said and "/sign-in/ticket" not in said
