"""MCP servers behind OAuth: tokens are got, sent, renewed once for all callers and gateways, and never shown."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer

from backends.control import mcp as mcp_objects
from backends.control import organisation
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.keys import KeyRequest, create_key
from backends.control.mcp_tokens import DatabaseTokenStore
from backends.control.sealer import Sealer
from backends.control.stored_keys import delete_key, put_key, reseal_all
from backends.secrets.secret_files import SecretFiles
from contracts.control import McpToken
from contracts.errors import ConfigurationError, Conflict, ControlUnavailable
from contracts.mcp.oauth import AccessGrant
from contracts.mcp.plain import mcp_server_of
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from tests.gateway.conftest import KEY, Running
from tests.gateway.mcp.authorization_server import CLIENT_ID, CLIENT_SECRET, OAuthServer
from tests.gateway.mcp.conftest import ServedMcp, call, post, tool_calls, with_servers
from tests.gateway.mcp.raw_server import Call
from tests.gateway.mcp.test_bad_servers import TEXT, failure


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    server = OAuthServer()
    yield server
    server.stop()


@pytest.fixture
def protected(oauth: OAuthServer, serve_mcp: Callable[..., ServedMcp]) -> ServedMcp:
    """An MCP server of the SDK that takes this authorization server's tokens, if they are for its own address."""
    return serve_mcp(partial(_protected, oauth))


def _protected(oauth: OAuthServer, url: str) -> MCPServer:
    settings = AuthSettings.model_validate(
        {"issuer_url": oauth.issuer, "resource_server_url": url, "validate_token_resource": True}
    )
    server = MCPServer("weather", token_verifier=oauth, auth=settings)

    @server.tool()
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        return f"sunny in {city}"

    return server


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OAUTH_CLIENT_SECRET", CLIENT_SECRET)


def spec(url: str, oauth: OAuthServer, **more: Any) -> dict[str, Any]:
    given = {"client_id": CLIENT_ID, "client_secret": "env:OAUTH_CLIENT_SECRET", "issuer": oauth.issuer, **more}
    return {"name": "weather", "url": url, "oauth": {name: value for name, value in given.items() if value}}


async def weather(gateway: Running) -> dict[str, Any]:
    return await call(gateway, "weather__get_weather", {"city": "Bern"})


async def test_client_credentials_bring_one_token_for_many_calls(start_gateway, oauth, protected):
    gateway = await start_gateway(with_servers(spec(protected.url, oauth, scope="read write")))
    results = await asyncio.gather(*(weather(gateway) for _ in range(10)))
    assert {one["content"][0]["text"] for one in results} == {"sunny in Bern"}
    assert oauth.grants == [{"grant_type": "client_credentials", "scope": "read write", "resource": protected.url}]


async def test_a_secret_is_posted_if_the_authorization_server_takes_no_other_way(start_gateway, serve_mcp):
    oauth = OAuthServer(("client_secret_post",))
    try:
        gateway = await start_gateway(with_servers(spec(serve_mcp(partial(_protected, oauth)).url, oauth)))
        await post(gateway, "tools/list")
    finally:
        oauth.stop()
    assert oauth.grants[0]["client_secret"] == CLIENT_SECRET and oauth.refused == 0


async def test_a_refused_token_is_renewed_once_for_all_callers_and_the_calls_are_repeated(
    start_gateway, oauth, protected
):
    gateway = await start_gateway(with_servers(spec(protected.url, oauth)))
    await weather(gateway)
    oauth.revoke_access()
    oauth.delay_seconds = 0.3
    results = await asyncio.gather(*(weather(gateway) for _ in range(10)))
    assert not any(one.get("isError") for one in results)
    assert len(oauth.grants) == 2
    assert [record.outcome for record in tool_calls(gateway)] == ["ok"] * 11


async def test_a_token_is_renewed_before_it_ends_and_one_that_holds_is_used_while_that_fails(
    start_gateway, oauth, protected
):
    oauth.expires_in = 0
    gateway = await start_gateway(with_servers(spec(protected.url, oauth)))
    await weather(gateway)
    before = len(oauth.grants)
    assert before >= 2, "the list, then the call: a token without lifetime is used for one request"
    oauth.expires_in = 3600
    await weather(gateway)
    await weather(gateway)
    assert len(oauth.grants) == before + 1


async def test_a_server_that_refuses_every_token_is_an_error_and_floods_nobody(start_gateway, oauth, raw):
    async def refuse(one: Call) -> None:
        one.whole(b"{}", 401)

    server = await raw(refuse)
    gateway = await start_gateway(with_servers(spec(server.url, oauth)))
    for _ in range(5):
        code, text = failure(await call(gateway, "weather__go"))
        assert code == "target_misconfigured" and oauth.issuer not in text
    assert len(oauth.grants) == 2


@pytest.mark.parametrize("status", [401, 502])
async def test_a_failing_authorization_server_is_asked_once_in_five_seconds(start_gateway, oauth, protected, status):
    config = spec(protected.url, oauth)
    if status == 502:
        oauth.is_away = True
    else:
        config["oauth"]["client_id"] = "tollkeeper"
        config["oauth"]["client_secret"] = "env:WRONG_SECRET"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WRONG_SECRET", "not-the-secret")
        gateway = await start_gateway(with_servers(config))
    for _ in range(5):
        await post(gateway, "tools/list")
    assert len(oauth.grants) == (0 if oauth.is_away else 1)
    [state] = gateway.gateway.mcp.states()
    assert ("invalid_client" if status == 401 else "status 502") in state["fault"]
    assert "not-the-secret" not in state["fault"]


async def test_metadata_that_name_an_internal_address_are_not_followed(start_gateway, oauth, protected):
    """The server itself says where its authorization server is, and the gateway's configuration does not."""
    gateway = await start_gateway(with_servers(spec(protected.url, oauth, issuer="")))
    await post(gateway, "tools/list")
    assert not oauth.grants
    [state] = gateway.gateway.mcp.states()
    assert "is not https" in state["fault"] or "not public" in state["fault"]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"resource": "{own}", "authorization_servers": ["https://169.254.169.254/"]}, "not public"),
        ({"resource": "{own}", "authorization_servers": ["https://[::ffff:10.0.0.1]/"]}, "not public"),
        ({"resource": "{own}", "authorization_servers": ["http://example.com/"]}, "is not https"),
        (
            {"resource": "https://other.example/mcp", "authorization_servers": ["https://x.example"]},
            "about the resource",
        ),
        ({"resource": "{own}/further", "authorization_servers": ["https://x.example"]}, "about the resource"),
        ({"resource": "{own}", "authorization_servers": []}, "no authorization server"),
        ({"resource": "{own}", "authorization_servers": [7]}, "no authorization server"),
        ({"resource": "{own}", "authorization_servers": ["https://["]}, "is not a URL"),
    ],
)
async def test_lying_metadata_lead_nowhere(start_gateway, oauth, raw, document, words):
    server = await raw(None)
    text = json.dumps(document).replace("{own}", server.url)
    server.on_get = lambda path: (200, text)
    gateway = await start_gateway(with_servers(spec(server.url, oauth, issuer="")))
    await post(gateway, "tools/list")
    [state] = gateway.gateway.mcp.states()
    assert words in state["fault"] and not oauth.grants


async def test_a_refusal_says_where_the_metadata_are_and_they_lead_to_the_token(start_gateway, oauth, raw):
    """At the well-known places there is nothing; issuer and token endpoint are at the server's own origin."""
    asked, forms = [], []

    def get(path: str) -> tuple[int, str]:
        asked.append(path)
        documents = {
            "/about": {"resource": server.url, "authorization_servers": [f"{origin}/tenant"]},
            "/tenant/.well-known/openid-configuration": {
                "issuer": f"{origin}/tenant",
                "token_endpoint": f"{origin}/token",
            },
        }
        found = documents.get(path)
        return (404, "{}") if found is None else (200, json.dumps(found))

    def grant(form: dict[str, str]) -> dict[str, Any]:
        forms.append(form)
        return {"access_token": "granted-1", "token_type": "bearer", "expires_in": "3600"}

    async def answer(one: Call) -> None:
        if one.headers.get("authorization") == "Bearer granted-1":
            one.result({"supportedVersions": ["2026-07-28"], "tools": server.tools, **TEXT})
        else:
            one.whole(b"{}", 401, www_authenticate=f'Bearer error="x", resource_metadata="{origin}/about"')

    server = await raw(answer)
    server.on_get, server.on_form, server.on_list, server.on_discover = get, grant, answer, answer
    origin = server.url.removesuffix("/mcp")
    gateway = await start_gateway(with_servers(spec(server.url, oauth, issuer="")))
    assert (await call(gateway, "weather__go"))["content"] == TEXT["content"]
    assert forms == [{"grant_type": "client_credentials", "resource": server.url}]
    well_known = "/.well-known/oauth-"
    assert asked == [
        f"{well_known}protected-resource/mcp",
        f"{well_known}protected-resource",
        "/about",
        f"{well_known}authorization-server/tenant",
        "/.well-known/openid-configuration/tenant",
        "/tenant/.well-known/openid-configuration",
    ]


async def test_redirecting_and_endless_metadata_are_refused(start_gateway, oauth, raw):
    server = await raw(None)
    faults = []
    for status, body in [(302, ""), (200, "x" * 300_000)]:
        server.on_get = lambda path, status=status, body=body: (status, body)
        gateway = await start_gateway(with_servers(spec(server.url, oauth, issuer=server.url)))
        await post(gateway, "tools/list")
        faults += [state["fault"] for state in gateway.gateway.mcp.states()]
    assert "redirects (status 302)" in faults[0] and "longer than" in faults[1]


async def test_a_server_that_echoes_its_requests_shows_no_caller_the_token(start_gateway, oauth, raw):
    async def echo(one: Call) -> None:
        text = json.dumps(one.headers)
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": text}}
        one.stream()
        one.event(note)
        one.event({"jsonrpc": "2.0", "id": one.message["id"], "result": {"content": [{"type": "text", "text": text}]}})
        one.end()

    server = await raw(echo)
    gateway = await start_gateway(with_servers(spec(server.url, oauth)))
    result = await call(gateway, "weather__go")
    assert "Bearer [secret]" in result["content"][0]["text"] and oauth.issued[0] not in json.dumps(result)


# Refresh tokens, which rotate.


class Shared:
    """A control database, and gateways that share it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.secrets = SecretFiles(folder / "secrets")
        self.sealer = Sealer.of(self.secrets)
        self.database = ControlDatabase(url)
        self.running: list[Running] = []
        pepper = self.secrets.get_or_create("key_pepper").encode()
        with self.database.session() as session:
            organisation.create_tenant(session, author(), "acme", "Acme")
            create_key(session, author(), KeyRequest(tenant_id="acme", name="k"), KEY, pepper)
            put_key(session, author(), "weather-secret", CLIENT_SECRET, self.sealer)

    def set(self, rules: dict[str, Any], refresh_token: str) -> None:
        with self.database.session() as session:
            put_key(session, author(), "weather-refresh", refresh_token, self.sealer)
            change = mcp_objects.set_object if self._is_there(session) else mcp_objects.create_object
            change(session, author(), mcp_objects.SERVERS, "weather", rules)

    def _is_there(self, session: Any) -> bool:
        return bool(mcp_objects.list_objects(session, mcp_objects.SERVERS))

    async def gateway(self) -> Running:
        data = self.folder / f"g{len(self.running)}"
        shutil.copytree(self.folder / "secrets", data / "secrets")
        process = Gateway(
            GatewaySettings(data=data, database_url=self.url, gateway_port=0, collector_url="", drain_seconds=0.2)
        )
        await process.start()
        self.running.append(Running(process))
        return self.running[-1]


def author() -> Author:
    return Author("ada", datetime.now(UTC))


@pytest.fixture
async def shared(tmp_path: Path, control_database_url: str) -> Any:
    made = Shared(tmp_path, control_database_url)
    yield made
    for one in made.running:
        await one.close()
    made.database.close()


def rules(url: str, oauth: OAuthServer) -> dict[str, Any]:
    given = {
        "client_id": CLIENT_ID,
        "client_secret": "stored:weather-secret",
        "refresh_token": "stored:weather-refresh",
    }
    return {"url": url, "oauth": {**given, "issuer": oauth.issuer}}


async def test_four_gateways_share_tokens_whose_refresh_tokens_are_used_once(shared, oauth, protected):
    shared.set(rules(protected.url, oauth), oauth.refresh_token())
    gateways = [await shared.gateway() for _ in range(4)]
    for number in range(1, 3):
        oauth.delay_seconds = 0.1
        results = await asyncio.gather(*(weather(gateway) for gateway in gateways for _ in range(3)))
        assert not any(one.get("isError") for one in results), results
        assert (len(oauth.grants), oauth.refused) == (number, 0)
        oauth.revoke_access()
    with shared.database.session() as session:
        sealed = session.get(McpToken, "weather").sealed
    assert oauth.issued[-1] in shared.sealer.open(sealed) and oauth.issued[-1] not in sealed
    assert (await shared.gateway()) and not (await weather(shared.running[-1])).get("isError")
    assert oauth.refused == 0, "a gateway that starts later goes on with what is stored"


async def test_a_new_refresh_token_replaces_what_came_from_the_one_before(shared, oauth, protected):
    shared.set(rules(protected.url, oauth), "revoked-long-ago")
    gateway = await shared.gateway()
    answer = await post(gateway, "tools/list")
    assert answer[2]["result"]["tools"] == []
    [state] = gateway.gateway.mcp.states()
    assert "invalid_grant" in state["fault"] and "store the new one" in state["fault"]
    shared.set(rules(protected.url, oauth), oauth.refresh_token())
    await gateway.gateway.directory.refresh()
    assert (await weather(gateway))["content"][0]["text"] == "sunny in Bern"
    assert (oauth.refused, len(oauth.issued)) == (1, 1)


async def test_a_key_that_a_server_uses_is_not_deleted_and_its_tokens_are_sealed_again_and_go_with_it(
    shared, oauth, protected
):
    shared.set(rules(protected.url, oauth), oauth.refresh_token())
    store = DatabaseTokenStore(shared.url, "g", shared.secrets)
    store.keep("weather", AccessGrant("token"))
    for name in ("weather-secret", "weather-refresh"):
        with pytest.raises(Conflict, match="MCP server 'weather'"), shared.database.session() as session:
            delete_key(session, author(), name)
    shared.secrets.replace("channel_key", f"{'A' * 43}\n{shared.secrets.get('channel_key')}")
    with shared.database.session() as session:
        before = session.get(McpToken, "weather").sealed
        assert reseal_all(session, author(), Sealer.of(shared.secrets))["mcp_tokens"] == 1
        assert session.get(McpToken, "weather").sealed != before
    assert store.read("weather") == AccessGrant("token")
    with shared.database.session() as session:
        mcp_objects.delete_object(session, author(), mcp_objects.SERVERS, "weather")
    assert store.read("weather") is None
    store.close()


async def test_a_gateway_of_a_file_keeps_rotated_tokens_sealed_over_a_restart(
    start_gateway, oauth, protected, tmp_path, monkeypatch
):
    monkeypatch.setenv("OAUTH_REFRESH", oauth.refresh_token())
    config = with_servers(spec(protected.url, oauth, refresh_token="env:OAUTH_REFRESH"))
    for number in range(1, 4):
        gateway = await start_gateway(config, data=tmp_path / "data")
        assert not (await weather(gateway)).get("isError")
        assert (len(oauth.grants), oauth.refused) == (number, 0)
        oauth.revoke_access()
        await gateway.close()
    held = tmp_path / "data" / "secrets" / "mcp-token-weather"
    assert oauth.issued[-1] not in held.read_text() and held.stat().st_mode & 0o077 == 0


async def test_tokens_that_cannot_be_stored_are_used_and_stored_later(shared, oauth, protected, monkeypatch):
    shared.set(rules(protected.url, oauth), oauth.refresh_token())
    gateway = await shared.gateway()
    store = gateway.gateway.mcp._token_store
    keep = store.keep
    failures: list[AccessGrant] = []

    def fail_once(server: str, grant: AccessGrant) -> None:
        if not failures:
            failures.append(grant)
            raise ControlUnavailable("the disk is full")
        keep(server, grant)

    monkeypatch.setattr(store, "keep", fail_once)
    monkeypatch.setattr("backends.mcp.access_tokens._KEEP_AGAIN_SECONDS", 0.05)
    assert not (await weather(gateway)).get("isError")
    for _ in range(100):
        if store.read("weather") == failures[0]:
            break
        await asyncio.sleep(0.05)
    assert store.read("weather") == failures[0]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"client_id": "with space"}, "oauth.client_id"),
        ({"client_secret": "the-secret-itself"}, "oauth.client_secret"),
        ({"client_secret": ""}, "oauth"),
        ({"issuer": "login.example.com"}, "oauth.issuer"),
        ({"issuer": "https://a.example", "token_url": "https://a.example/token"}, "oauth.token_url"),
        ({"token_url": "https://user:word@a.example/token", "issuer": ""}, "oauth.token_url"),
        ({"scope": "two  spaces"}, "oauth.scope"),
        ({"resource": "https://a.example/#part"}, "oauth.resource"),
    ],
)
def test_what_cannot_stand_is_refused_by_its_field(change, param):
    given = {"client_id": "c", "client_secret": "env:X_API_KEY", "issuer": "https://a.example"}
    with pytest.raises(ConfigurationError) as caught:
        mcp_server_of("weather", {"url": "https://a.example/mcp", "oauth": {**given, **change}})
    assert caught.value.param == param and "the-secret-itself" not in caught.value.message
