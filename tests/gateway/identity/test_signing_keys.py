"""An identity provider's keys: found, rotated, withdrawn, away; and how often strangers can make us ask for them."""

import asyncio

import pytest

from contracts.errors import Unavailable
from gateway.identity.guess_limit import UnknownCredential
from tests.gateway.identity.identity_provider import (
    NOW,
    STALE_SECONDS,
    ec_key,
    forged,
    hands,
    provider,
    public_jwk,
    refused,
    rsa_key,
    snapshot_of,
    tokens,
)

__all__ = ["hands", "provider", "tokens"]  # fixtures

REFRESH_SECONDS = 300


async def test_the_keys_are_found_by_discovery_or_where_the_operator_says(tokens, provider, hands):
    await tokens.verify(provider.token(), snapshot_of(provider.spec(keys_url=f"{provider.issuer}/keys")))
    assert provider.fetches == {"/keys": 1}
    await tokens.verify(provider.token(), snapshot_of(provider.spec()))
    assert provider.fetches == {"/.well-known/openid-configuration": 1, "/keys": 2}


@pytest.mark.parametrize(
    ("discovery", "words"),
    [
        ({"issuer": "https://elsewhere.example"}, "not this issuer's"),
        ({"jwks_uri": None}, "no 'jwks_uri'"),
        ({"jwks_uri": "file:///etc/passwd"}, "not a valid URL"),
    ],
)
async def test_a_wrong_discovery_document_is_not_followed(tokens, provider, discovery, words):
    provider.discovery = discovery
    with pytest.raises(Unavailable):
        await tokens.verify(provider.token(), snapshot_of(provider.spec()))
    assert words in tokens.status()[provider.issuer]["problem"]
    assert provider.key_fetches == 0


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"keys": {}}', b'{"keys": [' + b"{}," * 100 + b"{}]}"])
async def test_a_broken_key_set_leaves_the_issuer_without_keys(tokens, provider, body):
    provider.body = body
    with pytest.raises(Unavailable) as error:
        await tokens.verify(provider.token(), snapshot_of(provider.spec(keys_url=f"{provider.issuer}/keys")))
    assert (error.value.status, error.value.error_code) == (503, "issuer_unavailable")


async def test_a_key_set_too_long_is_not_read(tokens, provider):
    provider.body = b" " * ((1 << 20) + 1)
    with pytest.raises(Unavailable):
        await tokens.verify(provider.token(), snapshot_of(provider.spec(keys_url=f"{provider.issuer}/keys")))
    assert "longer than 1048576 bytes" in tokens.status()[provider.issuer]["problem"]


async def test_keys_not_fit_for_signatures_are_not_used(tokens, provider):
    weak, secret = rsa_key(9, bits=1024), {"kty": "oct", "k": "c2VjcmV0", "kid": "s1", "alg": "HS256"}
    provider.keys += [public_jwk(weak, "weak"), public_jwk(rsa_key(2), "enc", use="enc"), secret, {"kty": "RSA"}, "x"]
    provider.keys += [public_jwk(rsa_key(3), "other", alg="RS512"), {"kty": "EC", "kid": "torn", "crv": "P-256"}]
    snapshot = snapshot_of(provider.spec())
    for key_id, key in (("enc", rsa_key(2)), ("other", rsa_key(3)), ("s1", rsa_key()), ("torn", rsa_key())):
        await refused(tokens, provider.token(key, key_id), snapshot, UnknownCredential)
    await refused(tokens, forged(provider, header={"kid": "weak"}, signature="A" * 171), snapshot, UnknownCredential)
    assert await tokens.verify(provider.token(), snapshot)


async def test_a_token_without_a_key_id_is_verified_with_the_only_key_that_fits(tokens, provider, hands):
    snapshot = snapshot_of(provider.spec())
    assert await tokens.verify(provider.token(key_id=None), snapshot)
    provider.keys.append(public_jwk(rsa_key(2), "r2"))
    hands.seconds = REFRESH_SECONDS
    await tokens.refresh(snapshot.issuers)
    message = await refused(tokens, provider.token(key_id=None, sub="bob"), snapshot, UnknownCredential)
    assert "not exactly one that fits" in message


async def test_a_new_key_of_the_provider_is_taken_at_its_first_token(tokens, provider, hands):
    snapshot = snapshot_of(provider.spec())
    await tokens.verify(provider.token(), snapshot)
    provider.keys = [public_jwk(rsa_key(2), "r2")]
    hands.seconds = 10.0
    assert await tokens.verify(provider.token(rsa_key(2), "r2"), snapshot)
    assert provider.key_fetches == 2


async def test_a_withdrawn_key_takes_the_tokens_it_signed_with_it(tokens, provider, hands):
    snapshot = snapshot_of(provider.spec())
    old, kept = provider.token(exp=NOW + 9999), provider.token(ec_key(), "e1", "ES256", exp=NOW + 9999)
    await tokens.verify(old, snapshot)
    await tokens.verify(kept, snapshot)
    provider.keys = [public_jwk(ec_key(), "e1")]
    hands.seconds = REFRESH_SECONDS - 0.001
    await tokens.refresh(snapshot.issuers)
    assert tokens.known(old, snapshot) is not None and provider.key_fetches == 1
    hands.seconds = REFRESH_SECONDS
    await tokens.refresh(snapshot.issuers)
    assert tokens.known(old, snapshot) is None
    message = await refused(tokens, old, snapshot, UnknownCredential)
    assert "not among its issuer's" in message
    assert await tokens.verify(kept, snapshot)


async def test_forged_key_ids_cost_the_provider_one_question_in_ten_seconds(tokens, provider, hands):
    snapshot = snapshot_of(provider.spec())
    await tokens.verify(provider.token(), snapshot)
    for number in range(50):
        message = await refused(tokens, forged(provider, header={"kid": f"k{number}"}), snapshot, UnknownCredential)
    assert provider.key_fetches == 1 and "again in 10 s" in message
    hands.seconds = 9.999
    await refused(tokens, forged(provider, header={"kid": "k"}), snapshot, UnknownCredential)
    assert provider.key_fetches == 1
    hands.seconds = 10.0
    for number in range(50):
        await refused(tokens, forged(provider, header={"kid": f"k{number}"}), snapshot, UnknownCredential)
    assert provider.key_fetches == 2


async def test_those_who_wait_for_a_fetch_share_it_and_are_bounded(tokens, provider):
    spec = provider.spec(keys_url=f"{provider.issuer}/keys")
    provider.gate.clear()
    waiting = [asyncio.create_task(tokens.verify(provider.token(), snapshot_of(spec))) for _ in range(64)]
    while not provider.key_fetches:
        await asyncio.sleep(0.001)
    with pytest.raises(Unavailable):
        await tokens.verify(provider.token(), snapshot_of(spec))  # at once: the gate is closed
    waiting[0].cancel()  # the one that began the fetch leaves
    await asyncio.sleep(0)
    provider.gate.set()
    results = await asyncio.gather(*waiting[1:])
    assert all(result.identity.user == "ada" for result in results)
    assert waiting[0].cancelled()
    assert provider.key_fetches == 1


async def test_keys_work_on_while_the_provider_is_away_for_as_long_as_stated(tokens, provider, hands):
    snapshot = snapshot_of(provider.spec())
    token = provider.token(exp=NOW + 99_999)
    await tokens.verify(token, snapshot)
    await provider.stop()
    last = REFRESH_SECONDS + STALE_SECONDS
    for seconds in (REFRESH_SECONDS, 2000, last):
        hands.seconds = seconds
        await tokens.refresh(snapshot.issuers)
        assert tokens.known(token, snapshot) is not None
        assert await tokens.verify(provider.token(sub=f"new-{seconds}"), snapshot) if seconds < 600 else True
    assert "cannot be fetched" in tokens.status()[provider.issuer]["problem"]
    hands.seconds = last + 0.001
    assert tokens.known(token, snapshot) is None
    with pytest.raises(Unavailable) as error:
        await tokens.verify(token, snapshot)
    assert error.value.error_code == "issuer_unavailable"
    assert error.value.retry_after_seconds == pytest.approx(10, abs=0.1)
    await provider.start()
    hands.seconds = last + 10
    assert await tokens.verify(token, snapshot)
    assert tokens.status()[provider.issuer]["problem"] == ""


@pytest.mark.parametrize("status", [301, 404, 500])
async def test_a_provider_that_answers_wrongly_is_away(tokens, provider, status):
    provider.status = status
    with pytest.raises(Unavailable):
        await tokens.verify(provider.token(), snapshot_of(provider.spec()))
    assert f"status {status}" in tokens.status()[provider.issuer]["problem"]
