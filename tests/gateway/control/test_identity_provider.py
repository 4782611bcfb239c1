"""Signing in by an identity provider: whose word is taken, for whom, and what an account is still needed for."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.control.accounts import NewUser, create_user
from backends.control.accounts import change_user as close_account
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import create_tenant
from contracts.control import Role
from contracts.errors import AuthenticationFailed, TollkeeperError, Unavailable
from contracts.recording.moments import utc_moment
from gateway.control.app import create_app
from gateway.control.identity_provider import IdentityProvider
from gateway.control.settings import ControlSettings
from tests.gateway.identity.identity_provider import AUDIENCE, Hands, Provider, rsa_key
from tests.gateway.identity.identity_provider import hands as hands
from tests.gateway.identity.identity_provider import provider as provider

METADATA = "/.well-known/openid-configuration"


@pytest.fixture
async def verifier(provider: Provider, hands: Hands) -> AsyncIterator[IdentityProvider]:
    made = IdentityProvider(f"{provider.issuer}{METADATA}", AUDIENCE, hands.clock)
    yield made
    await made.close()


async def test_the_address_that_the_provider_vouches_for_is_taken(
    provider: Provider, verifier: IdentityProvider
) -> None:
    claims: tuple[dict[str, Any], ...] = ({}, {"email_verified": True})
    for more in claims:
        found = await verifier.person_of(provider.token(email="ada@example.com", **more))
        assert found.email == "ada@example.com"
    assert provider.key_fetches == 1


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"email": ""},
        {"email": ["ada@example.com"]},
        {"email": "ada@example.com", "email_verified": False},
        {"email": "ada@example.com", "aud": "another application"},
        {"email": "ada@example.com", "iss": "https://evil.example"},
        {"email": "ada@example.com", "exp": 1},
    ],
)
async def test_a_token_that_proves_no_address_is_refused(
    provider: Provider, verifier: IdentityProvider, claims: dict[str, Any]
) -> None:
    with pytest.raises(AuthenticationFailed):
        await verifier.person_of(provider.token(**claims))


async def test_a_token_signed_by_somebody_else_is_refused(provider: Provider, verifier: IdentityProvider) -> None:
    with pytest.raises(AuthenticationFailed):
        await verifier.person_of(provider.token(key=rsa_key(2), email="ada@example.com"))


async def test_a_provider_that_is_away_is_asked_again_next_time(provider: Provider, verifier: IdentityProvider) -> None:
    provider.status = 503
    with pytest.raises(Unavailable):
        await verifier.person_of(provider.token(email="ada@example.com"))
    provider.status = 200
    assert (await verifier.person_of(provider.token(email="ada@example.com"))).email == "ada@example.com"


@pytest.mark.parametrize("missing", ["issuer", "jwks_uri"])
async def test_what_is_no_openid_configuration_is_named(
    provider: Provider, verifier: IdentityProvider, missing: str
) -> None:
    provider.discovery = {missing: None}
    with pytest.raises(TollkeeperError, match="is no OpenID configuration"):
        await verifier.person_of(provider.token(email="ada@example.com"))


@pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
async def test_who_the_provider_knows_needs_an_account_all_the_same(
    provider: Provider, control_database_url: str, tmp_path: Path
) -> None:
    settings = ControlSettings(
        data=tmp_path,
        database_url=control_database_url,
        oidc_metadata_url=f"{provider.issuer}{METADATA}",
        oidc_client_id=AUDIENCE,
    )
    app, now = create_app(settings), time.time()
    database: ControlDatabase = app.state.database
    with database.session() as session:
        author = Author("owner", utc_moment(time.time_ns()))
        create_user(session, author, Role.OWNER, NewUser("ada@example.com", "Ada", Role.FINANCE))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
        known = {"id_token": provider.token(now=now, email="Ada@Example.com")}
        begun = await client.post("/sign-in/oidc", json=known)
        assert begun.status_code == 201
        who = await client.get("/v1/sessions/current", headers={"Authorization": f"Bearer {begun.json()['token']}"})
        assert who.json()["role"] == "finance"
        stranger = await client.post(
            "/sign-in/oidc", json={"id_token": provider.token(now=now, email="eve@evil.example")}
        )
        assert stranger.status_code == 403 and "has no open account" in stranger.json()["error"]["message"]
        forged = await client.post("/sign-in/oidc", json={"id_token": "a.b.c"})
        assert forged.status_code == 401 and "a.b.c" not in forged.text
    await app.state.identity_provider.close()
    database.close()


@pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
async def test_groups_of_the_provider_become_teams_of_developers(
    provider: Provider, control_database_url: str, tmp_path: Path
) -> None:
    settings = ControlSettings(
        data=tmp_path,
        database_url=control_database_url,
        oidc_metadata_url=f"{provider.issuer}{METADATA}",
        oidc_client_id=AUDIENCE,
        oidc_tenant="acme",
        oidc_group_prefix="llm-",
    )
    app, now = create_app(settings), time.time()
    database: ControlDatabase = app.state.database
    with database.session() as session:
        author = Author("owner", utc_moment(time.time_ns()))
        create_tenant(session, author, "acme", "Acme")
        create_user(session, author, Role.OWNER, NewUser("boss@example.com", "Boss", Role.ADMIN, "acme"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as client:

        async def sign_in(email: str, *groups: str) -> tuple[str, str, str]:
            token = provider.token(now=now, email=email, name="Ada", groups=list(groups))
            begun = await client.post("/sign-in/oidc", json={"id_token": token})
            assert begun.status_code == 201, begun.text
            body = begun.json()
            return body["role"], body["team_id"], body["token"]

        role, team, token = await sign_in("ada@example.com", "everybody", "llm-Search", "llm-Sales")
        assert (role, team) == ("developer", "search")
        headers = {"Authorization": f"Bearer {token}"}
        made = await client.post("/v1/self/keys", json={"name": "laptop"}, headers=headers)
        assert made.status_code == 201 and made.json()["team_id"] == "search"
        assert (await sign_in("ada@example.com", "llm-Sales", "llm-Search"))[1] == "search", "still one of its groups"
        assert (await client.get("/v1/self/keys", headers=headers)).json()["data"][0]["revoked_at"] is None
        assert (await sign_in("ada@example.com", "llm-Sales"))[1] == "sales"
        assert (await client.get("/v1/self/keys", headers=headers)).json()["data"][0]["revoked_at"]
        assert (await sign_in("ada@example.com", "everybody"))[1] == "", "no group of ours, no team"
        assert (await sign_in("boss@example.com", "llm-Search"))[:2] == ("admin", "")
        with database.session() as session:
            close_account(session, author, Role.OWNER, "ada@example.com", is_active=False)
        refused = await client.post(
            "/sign-in/oidc", json={"id_token": provider.token(now=now, email="ada@example.com", groups=["llm-Search"])}
        )
        assert refused.status_code == 403, "a closed account is not opened by a sign-in"
    await app.state.identity_provider.close()
    database.close()
