"""Tokens of identity providers: which are good, what is said of the others, and how long they are remembered."""

import hashlib
import hmac
import re
from dataclasses import replace

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from contracts.control.organisation import SLUG_PATTERN
from contracts.errors import AuthenticationFailed, PermissionDenied
from contracts.rules.limits import TenantSpec
from contracts.serving.configuration import KeyPolicy
from gateway.identity import token_issuers
from gateway.identity.guess_limit import UnknownCredential
from gateway.identity.token_issuers import TokenIssuers
from tests.gateway.identity.identity_provider import (
    AUDIENCE,
    NOW,
    STALE_SECONDS,
    ec_key,
    forged,
    hands,
    provider,
    refused,
    rsa_key,
    segment,
    snapshot_of,
    tokens,
)

__all__ = ["hands", "provider", "tokens"]  # fixtures


@pytest.mark.parametrize(("key_id", "key", "algorithm"), [("r1", rsa_key, "RS256"), ("e1", ec_key, "ES256")])
async def test_a_good_token_stands_for_its_tenant_and_user(tokens, provider, key_id, key, algorithm):
    policy = KeyPolicy(priority="batch")
    spec = provider.spec(models=frozenset({"m"}), endpoints=frozenset({"embeddings"}), policy=policy)
    token = provider.token(key(), key_id, algorithm)
    entry = await tokens.verify(token, snapshot_of(spec))
    assert (entry.identity.tenant, entry.identity.user) == ("acme", "ada")
    assert re.fullmatch(r"jwt:[0-9a-f]{24}", entry.identity.key_id)
    assert (entry.models, entry.endpoints, entry.policy) == ({"m"}, {"embeddings"}, policy)
    assert entry.expires_at_ns == (NOW + 600 + 30) * 10**9
    assert entry.digest == hashlib.sha256(token.encode()).digest()
    assert tokens.known(token, snapshot_of(spec)) is entry


async def test_the_key_id_is_the_subjects_and_stays_from_token_to_token(tokens, provider):
    snapshot = snapshot_of(provider.spec())
    first = await tokens.verify(provider.token(), snapshot)
    second = await tokens.verify(provider.token(exp=NOW + 700), snapshot)
    other = await tokens.verify(provider.token(sub="bob"), snapshot)
    assert first.identity.key_id == second.identity.key_id != other.identity.key_id


async def test_a_subject_in_two_projects_has_a_key_id_for_each_as_a_key_has_one_payer(tokens, provider):
    snapshot = snapshot_of(provider.spec(team_claim="team", project_claim="project"))
    places = [("core", "apollo"), ("core", "gemini"), ("data", "apollo"), ("core", "apollo")]
    entries = [await tokens.verify(provider.token(team=team, project=name), snapshot) for team, name in places]
    identities = [entry.identity for entry in entries]
    assert identities[0] == identities[3] and len({found.key_id for found in identities}) == 3
    assert {found.user for found in identities} == {"ada"}


async def test_payer_and_user_are_read_from_claims(tokens, provider):
    spec = provider.spec(tenant_claim="org", team_claim="team", project_claim="https://x/project", user_claim="email")
    snapshot = snapshot_of(spec, tenants=[TenantSpec("globex")])
    claims = {"org": "globex", "team": "core", "https://x/project": "apollo", "email": "ada@globex.example"}
    entry = await tokens.verify(provider.token(**claims), snapshot)
    found = entry.identity
    assert (found.tenant, found.team, found.project, found.user) == ("globex", "core", "apollo", "ada@globex.example")


@pytest.mark.parametrize("name", ["org", "team", "project"])
@pytest.mark.parametrize("value", [None, "", "Globex", "a b", "-a", "a-", "a" * 64, 5, ["globex"], "globex\n"])
async def test_an_id_that_is_none_is_refused_naming_the_claim(tokens, provider, name, value):
    spec = provider.spec(tenant_claim="org", team_claim="team", project_claim="project")
    claims = {"org": "globex", "team": "core", "project": "apollo", name: value}
    message = await refused(tokens, provider.token(**claims), snapshot_of(spec))
    assert repr(name) in message and "at most 63" in message
    assert ("is missing" in message) == (value is None)


@pytest.mark.parametrize("value", [None, "", "u" * 257, "a\nb", "\ud800", 7, ["ada"]])
async def test_a_user_that_is_none_is_refused_naming_the_claim(tokens, provider, value):
    message = await refused(tokens, provider.token(email=value), snapshot_of(provider.spec(user_claim="email")))
    assert "'email'" in message and "256" in message


async def test_a_user_of_256_characters_is_taken(tokens, provider):
    snapshot = snapshot_of(provider.spec(user_claim="email"))
    assert (await tokens.verify(provider.token(email="u" * 256), snapshot)).identity.user == "u" * 256


def test_ids_in_claims_are_those_of_the_control_plane():
    assert f"^{token_issuers._SLUG.pattern}$" == SLUG_PATTERN


async def test_a_token_is_good_until_its_expiry_and_half_a_minute_more(tokens, provider, hands):
    snapshot = snapshot_of(provider.spec())
    token = provider.token(exp=NOW + 60)
    await tokens.verify(token, snapshot)
    hands.seconds = 89.999
    assert tokens.known(token, snapshot) is not None
    assert await TokenIssuers(hands.clock, STALE_SECONDS).verify(token, snapshot)
    hands.seconds = 90.0
    assert tokens.known(token, snapshot) is None
    assert f"expired at {token_issuers._written(NOW + 60)}" in await refused(tokens, token, snapshot)


async def test_a_token_is_not_good_before_its_time_less_half_a_minute(tokens, provider, hands):
    snapshot = snapshot_of(provider.spec())
    token = provider.token(nbf=NOW + 60)
    hands.seconds = 29.999
    assert "not valid before 2027-01-15T08:01:00Z" in await refused(tokens, token, snapshot)
    hands.seconds = 30.0
    assert await tokens.verify(token, snapshot)


@pytest.mark.parametrize("claim", ["exp", "nbf"])
@pytest.mark.parametrize("value", ["soon", True, -1, 10**30, float("inf"), float("nan"), [1]])
async def test_a_time_that_is_none_is_refused(tokens, provider, claim, value):
    message = await refused(tokens, provider.token(**{claim: value}), snapshot_of(provider.spec()))
    assert f"{claim!r} is not a time" in message


@pytest.mark.parametrize("claim", ["exp", "sub", "aud"])
async def test_a_token_without_a_claim_that_is_needed_is_refused_naming_it(tokens, provider, claim):
    assert f"no claim {claim!r}" in await refused(tokens, provider.token(**{claim: None}), snapshot_of(provider.spec()))


@pytest.mark.parametrize("audience", ["other", ["other", "more"], AUDIENCE + "x"])
async def test_a_token_for_others_is_refused(tokens, provider, audience):
    message = await refused(tokens, provider.token(aud=audience), snapshot_of(provider.spec()))
    assert "another audience" in message and repr(AUDIENCE) in message


async def test_one_audience_of_several_is_enough(tokens, provider):
    assert await tokens.verify(provider.token(aud=["other", AUDIENCE]), snapshot_of(provider.spec()))


async def test_an_issuer_may_be_named_once_for_each_audience(tokens, provider):
    snapshot = snapshot_of(provider.spec(), provider.spec(audience="second", tenant="globex"))
    assert (await tokens.verify(provider.token(), snapshot)).identity.tenant == "acme"
    assert (await tokens.verify(provider.token(aud="second"), snapshot)).identity.tenant == "globex"


@pytest.mark.parametrize("issuer", [None, "https://elsewhere.example", 5, "https://" + "x" * 500])
async def test_a_token_of_an_unknown_issuer_is_refused_and_nobody_is_asked(tokens, provider, issuer):
    token = provider.token(iss=issuer) if not isinstance(issuer, int) else forged(provider, {"iss": issuer})
    message = await refused(tokens, token, snapshot_of(provider.spec()), UnknownCredential)
    assert "not known here" in message and len(message) < 200
    assert not provider.fetches


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "HS256", "RS512", "PS256", None, 5, ["RS256"]])
async def test_another_signature_algorithm_is_refused(tokens, provider, algorithm):
    for signature in ("", "c2ln"):
        token = forged(provider, header={"alg": algorithm}, signature=signature)
        message = await refused(tokens, token, snapshot_of(provider.spec()), UnknownCredential)
        assert "'alg'" in message and "RS256, ES256" in message


async def test_an_hmac_with_the_public_key_as_its_secret_is_refused(tokens, provider):
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    secret = rsa_key().public_key().public_bytes(encoding, form)
    for algorithm in ("HS256", "RS256"):
        content = f"{segment({'alg': algorithm, 'kid': 'r1'})}.{segment(provider.claims())}"
        signature = jwt.utils.base64url_encode(hmac.digest(secret, content.encode(), "sha256")).decode()
        await refused(tokens, f"{content}.{signature}", snapshot_of(provider.spec()), UnknownCredential)


async def test_a_key_is_used_for_the_algorithm_of_its_kind_only(tokens, provider):
    snapshot = snapshot_of(provider.spec())
    for key_id, algorithm in (("e1", "RS256"), ("r1", "ES256")):
        token = forged(provider, header={"kid": key_id, "alg": algorithm}, signature="A" * 86)
        await refused(tokens, token, snapshot, UnknownCredential)


async def test_what_was_changed_after_signing_is_refused(tokens, provider):
    head, _, signature = provider.token().split(".")
    token = f"{head}.{segment(provider.claims(sub='root'))}.{signature}"
    message = await refused(tokens, token, snapshot_of(provider.spec()), UnknownCredential)
    assert "signature does not match" in message


@pytest.mark.parametrize(
    "token",
    ["a.b.c", "..", "é.é.é", f"{segment([])}.{segment({})}.c2ln", "W" * 20_000 + ".a.b"]
    + [f"{'W1tb' * 3000}.e30.c2ln", f"{segment({'alg': 'RS256'})}.{'W1tb' * 3000}.c2ln"]
    + [f"{segment({'alg': 'RS256', 'kid': 5})}.{segment({})}.c2ln"]
    + [f"{segment({'alg': 'RS256', 'crit': ['exp'], 'exp': 1})}.{segment({})}.c2ln"],
)
async def test_what_is_no_token_is_refused(tokens, provider, token):
    await refused(tokens, token, snapshot_of(provider.spec()), UnknownCredential)
    assert not provider.fetches


async def test_a_tenant_must_exist_and_be_active_also_for_a_token_seen_before(tokens, provider):
    spec = provider.spec(tenant_claim="org")
    token = provider.token(org="globex")
    there = snapshot_of(spec, tenants=[TenantSpec("globex")])
    gone = replace(there, tenants={"acme": TenantSpec("acme")})
    inactive = replace(there, tenants={"globex": TenantSpec("globex", is_active=False)})
    assert "'globex', which does not exist" in await refused(tokens, token, gone)
    with pytest.raises(PermissionDenied, match="'globex' is not active"):
        await tokens.verify(token, inactive)
    await tokens.verify(token, there)
    with pytest.raises(AuthenticationFailed):
        tokens.known(token, gone)
    with pytest.raises(PermissionDenied):
        tokens.known(token, inactive)
    assert tokens.known(token, there) is not None


async def test_tokens_are_forgotten_when_issuers_change_and_not_when_others_do(tokens, provider):
    token = provider.token()
    await tokens.verify(token, snapshot_of(provider.spec()))
    assert tokens.known(token, snapshot_of(provider.spec())) is not None  # another snapshot that says the same
    changed = snapshot_of(provider.spec(models=frozenset({"m"})))
    assert tokens.known(token, changed) is None
    assert (await tokens.verify(token, changed)).models == {"m"}
    assert provider.key_fetches == 1  # its keys are as good as before
    removed = snapshot_of(provider.spec(issuer="https://elsewhere.example"))
    await refused(tokens, token, removed, UnknownCredential)


async def test_a_bounded_number_of_tokens_is_remembered(provider, hands):
    tokens = TokenIssuers(hands.clock, STALE_SECONDS, max_remembered=3)
    snapshot = snapshot_of(provider.spec())
    signed = [provider.token(sub=f"user-{number}") for number in range(4)]
    for token in signed[:3]:
        await tokens.verify(token, snapshot)
    tokens.known(signed[0], snapshot)  # used last, so that the second goes
    await tokens.verify(signed[3], snapshot)
    assert [tokens.known(token, snapshot) is not None for token in signed] == [True, False, True, True]
    await tokens.close()
