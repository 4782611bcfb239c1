"""What a caller shows: a key in one of three headers, or a token, on every path that asks for one."""

import asyncio
import sys
import time
from dataclasses import replace

import pytest

from contracts.rules.limits import TenantSpec
from contracts.serving.configuration import KeyPolicy
from tests.gateway.identity.identity_provider import ec_key, provider, public_jwk, rsa_key

__all__ = ["provider"]  # fixture

OTHER = "tk-" + "B" * 43
MODELS = "/v1/models"


@pytest.fixture
async def two_keys(start_gateway, kit):
    """A gateway with keys of acme and of globex."""
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    config["keys"].append({"key": OTHER, "tenant": "globex", "id": "key_2"})
    return await start_gateway(config)


async def get(gateway, path=MODELS, **headers):
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return await gateway.ask(f"GET {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n".encode("latin-1"))


@pytest.mark.parametrize("name", ["X-Api-Key", "api-key", "API-KEY"])
async def test_the_key_may_come_in_the_headers_of_other_sdks(two_keys, name):
    answer = await two_keys.chat(headers={"Authorization": "", name: OTHER})
    assert answer.status == 200 and two_keys.requests()[-1].who.tenant == "globex"
    assert (await get(two_keys, **{name: OTHER})).status == 200


async def test_where_there_is_an_authorization_it_alone_counts(two_keys):
    assert (await two_keys.chat(headers={"X-Api-Key": OTHER, "Api-Key": OTHER})).status == 200
    assert two_keys.requests()[-1].who.tenant == "acme"
    for authorization in ("Bearer tk-" + "C" * 43, "Bearer nonsense", "Bearer ", "Basic dTpw"):
        answer = await two_keys.chat(headers={"Authorization": authorization, "X-Api-Key": OTHER})
        assert answer.status == 401, authorization


@pytest.mark.parametrize("name", ["X-Api-Key", "Api-Key"])
async def test_a_key_given_twice_is_ambiguous(two_keys, name):
    answer = await two_keys.chat(headers={"Authorization": "", name: f"{OTHER}\r\n{name}: {OTHER}"})
    assert (answer.status, answer.error["code"]) == (400, "ambiguous_framing")


async def test_a_key_of_an_inactive_tenant_is_refused_until_it_is_active_again(two_keys, kit):
    directory = two_keys.gateway.directory
    before = directory.snapshot
    directory.snapshot = replace(before, tenants={"acme": TenantSpec("acme", is_active=False)})
    answer = await two_keys.chat()
    assert (answer.status, answer.error["code"]) == (403, "permission_denied")
    assert "'acme' is not active" in answer.error["message"]
    directory.snapshot = replace(before, tenants={"acme": TenantSpec("acme")})
    assert (await two_keys.chat()).status == 200


def trust(gateway, *issuers):
    directory = gateway.gateway.directory
    directory.snapshot = replace(directory.snapshot, issuers=issuers)


def token_of(provider, **more):
    return provider.token(**{"now": time.time(), **more})


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("key", "key_id", "algorithm"), [(rsa_key, "r1", "RS256"), (ec_key, "e1", "ES256")], ids=["RS256", "ES256"]
)
async def test_a_token_is_as_good_as_a_key_and_its_user_stands_on_the_record(gateway, provider, key, key_id, algorithm):
    trust(gateway, provider.spec())
    token = token_of(provider, key=key(), key_id=key_id, algorithm=algorithm)
    for _ in range(2):
        answer = await gateway.chat(headers=bearer(token), user="somebody-else")
        assert answer.status == 200
    first, second = gateway.requests()
    assert (first.who.tenant, first.who.user) == ("acme", "ada")  # what its provider vouches for, not what it says
    assert first.who == second.who and first.who.key_id.startswith("jwt:")
    assert provider.key_fetches == 1


async def test_a_token_sees_its_models_also_at_the_first_call(gateway, provider):
    trust(gateway, provider.spec(models=frozenset()), provider.spec(audience="all"))
    for _ in range(2):
        assert (await get(gateway, Authorization=f"Bearer {token_of(provider)}")).json["data"] == []
    for _ in range(2):
        answer = await get(gateway, Authorization=f"Bearer {token_of(provider, aud='all')}")
        assert [model["id"] for model in answer.json["data"]] == ["scripted-1"]
    refused = await get(gateway, Authorization=f"Bearer {token_of(provider, exp=time.time() - 31)}")
    assert refused.status == 401 and "expired" in refused.error["message"]
    missing = await get(gateway, f"{MODELS}/nothing", Authorization=f"Bearer {token_of(provider, sub='b')}")
    assert (missing.status, missing.error["code"]) == (404, "model_not_found")


async def test_a_token_is_held_to_endpoints_and_addresses_of_its_issuer(gateway, provider):
    trust(gateway, provider.spec(endpoints=frozenset({"embeddings"})))
    assert (await gateway.chat(headers=bearer(token_of(provider)))).error["code"] == "permission_denied"
    trust(gateway, provider.spec(policy=KeyPolicy(addresses=("192.0.2.0/24",))))
    for _ in range(2):  # verified now, and known
        assert (await gateway.chat(headers=bearer(token_of(provider)))).error["code"] == "address_not_allowed"


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": 1_000_000_000}, "expired at 2001-09-09T01:46:40Z"),
        ({"nbf": 4_000_000_000}, "not valid before 2096-10-02T07:06:40Z"),
        ({"aud": "other"}, "another audience"),
        ({"iss": "https://elsewhere.example"}, "'https://elsewhere.example', which is not known"),
        ({"sub": None}, "'sub'"),
        ({"org": "nobody"}, "'nobody', which does not exist"),
    ],
)
async def test_a_token_of_no_use_is_told_why_and_not_repeated(gateway, provider, caplog, claims, words):
    directory = gateway.gateway.directory
    directory.snapshot = replace(directory.snapshot, tenants={"acme": TenantSpec("acme")})
    trust(gateway, provider.spec(tenant_claim="org"))
    token = token_of(provider, **{"org": "acme", **claims})
    answer = await gateway.chat(headers=bearer(token))
    assert (answer.status, answer.error["code"], answer.error["type"]) == (
        401,
        "invalid_api_key",
        "authentication_error",
    )
    assert words in answer.error["message"]
    assert token.split(".")[1] not in answer.body.decode() + caplog.text
    assert not gateway.requests()


async def test_keys_work_beside_issuers_and_issuers_beside_a_provider_that_is_away(gateway, provider):
    away = provider.spec(issuer="http://127.0.0.1:9", keys_url="http://127.0.0.1:9/keys")
    trust(gateway, away, provider.spec())
    answer = await gateway.chat(headers=bearer(token_of(provider, iss="http://127.0.0.1:9")))
    assert (answer.status, answer.error["code"]) == (503, "issuer_unavailable")
    assert 1 <= int(answer.headers["retry-after"]) <= 10
    assert (await gateway.chat()).status == 200
    assert (await gateway.chat(headers=bearer(token_of(provider)))).status == 200
    issuers = (await get(gateway, "/ready")).json["issuers"]
    assert issuers["http://127.0.0.1:9"]["is_fresh"] is False
    assert issuers[provider.issuer]["keys"] == 2


async def test_a_key_that_the_provider_rotates_in_is_taken_once_it_may_be_asked_again(gateway, provider, monkeypatch):
    trust(gateway, provider.spec())
    assert (await gateway.chat(headers=bearer(token_of(provider)))).status == 200
    provider.keys = [public_jwk(rsa_key(2), "r2")]
    rotated = bearer(token_of(provider, key=rsa_key(2), key_id="r2"))
    refused = await gateway.chat(headers=rotated)
    assert refused.status == 401 and "s at the earliest" in refused.error["message"]
    monkeypatch.setattr("gateway.identity.signing_keys.LEAST_INTERVAL_NS", 0)
    assert (await gateway.chat(headers=rotated)).status == 200


async def test_a_client_that_leaves_while_keys_are_fetched_takes_nothing_with_it(gateway, provider):
    trust(gateway, provider.spec())
    provider.gate.clear()
    leaving, staying = await gateway.connect(), await gateway.connect()
    token = token_of(provider)
    await leaving.send(gateway.request(headers=bearer(token)))
    while not provider.fetches:
        await asyncio.sleep(0.001)
    await staying.send(gateway.request(headers=bearer(token)))
    leaving.reset()
    await asyncio.sleep(0.01)
    assert (await gateway.chat()).status == 200  # nobody else waits
    provider.gate.set()
    assert (await staying.answer()).status == 200


async def test_tokens_of_three_parts_are_malformed_keys_where_there_is_no_issuer(gateway):
    answer = await gateway.chat(headers=bearer("eyJhbGciOiJub25lIn0.e30.c2ln"))
    assert answer.status == 401 and "malformed" in answer.error["message"]


async def test_a_gateway_without_issuers_does_not_load_what_tokens_need():
    code = (
        "import sys, gateway.process.app, gateway.config.database_source; "
        "sys.exit(bool({'jwt', 'httpx', 'cryptography'} & set(sys.modules)))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-W", "error", "-c", code)
    assert await process.wait() == 0


async def test_signing_keys_are_fetched_before_the_first_token_comes(gateway, provider):
    trust(gateway, provider.spec())
    tokens = await gateway.gateway._authenticator._load_token_issuers()
    await tokens.refresh(gateway.gateway.directory.snapshot.issuers)
    await provider.stop()
    assert (await gateway.chat(headers=bearer(token_of(provider)))).status == 200
    await provider.start()
