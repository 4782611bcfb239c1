"""An identity provider on loopback, with the faults that a test asks for; and what tests of tokens share."""

import asyncio
import base64
import json
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from contracts.errors import AuthenticationFailed
from contracts.pricing.prices import PriceBook
from contracts.serving.configuration import IssuerSpec, Snapshot
from gateway.identity.token_issuers import TokenIssuers
from gateway.request.clock import Clock

AUDIENCE = "tollkeeper"
NOW = 1_800_000_000  # where a test holds the clock


@cache
def rsa_key(number: int = 1, bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(number: int = 1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public_jwk(key: Any, key_id: str, **more: str) -> dict[str, Any]:
    kind: Any = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": key_id, "use": "sig", **more}


def segment(value: object) -> str:
    """One part of a token, of anything."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


class Provider:
    """The server. `keys` is what it publishes now; `fetches` counts by path; `gate` holds its answers back."""

    def __init__(self) -> None:
        self.keys = [public_jwk(rsa_key(), "r1"), public_jwk(ec_key(), "e1")]
        self.fetches: dict[str, int] = {}
        self.status = 200
        self.body: bytes | None = None
        self.discovery: dict[str, Any] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key_fetches(self) -> int:
        return self.fetches.get("/keys", 0)

    def spec(self, **more: Any) -> IssuerSpec:
        payer = {} if "tenant_claim" in more else {"tenant": "acme"}
        return IssuerSpec(**{"issuer": self.issuer, "audience": AUDIENCE, **payer, **more})

    def claims(self, now: float = NOW, **more: Any) -> dict[str, Any]:
        """What a good token says; a claim of `None` is left out."""
        claims = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 600, **more}
        return {name: value for name, value in claims.items() if value is not None}

    def token(
        self, key: Any = None, key_id: str | None = "r1", algorithm: str = "RS256", now: float = NOW, **claims: Any
    ) -> str:
        headers = {} if key_id is None else {"kid": key_id}
        return jwt.encode(self.claims(now, **claims), key or rsa_key(), algorithm, headers=headers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
            self.fetches[path] = self.fetches.get(path, 0) + 1
            await self.gate.wait()
            answer: object = {"keys": self.keys}
            if path.startswith("/.well-known"):
                answer = {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys", **self.discovery}
            body = json.dumps(answer).encode() if self.body is None else self.body
            writer.write(
                b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (self.status, len(body)) + body
            )
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def provider():
    provider = Provider()
    await provider.start()
    yield provider
    provider.gate.set()
    await provider.stop()


class Hands:
    """Both clocks, in seconds from NOW."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.clock = Clock(
            wall_ns=lambda: NOW * 10**9 + round(self.seconds * 1e9), monotonic_ns=lambda: round(self.seconds * 1e9)
        )


STALE_SECONDS = 3600.0


@pytest.fixture
def hands():
    return Hands()


@pytest.fixture
async def tokens(hands):
    tokens = TokenIssuers(hands.clock, STALE_SECONDS)
    yield tokens
    await tokens.close()


def snapshot_of(*specs, tenants=()):
    return Snapshot(
        revision=1,
        keys={},
        models={},
        pools={},
        prices=PriceBook(),
        issuers=specs,
        tenants={tenant.id: tenant for tenant in tenants},
    )


async def refused(tokens, token, snapshot, kind=AuthenticationFailed):
    """Return what is said of a token that is refused, which is neither the token nor any part of it."""
    with pytest.raises(kind) as error:
        await tokens.verify(token, snapshot)
    assert type(error.value) is kind
    assert all(part not in error.value.message for part in token.split(".") if len(part) > 8)
    assert tokens.known(token, snapshot) is None
    return error.value.message


def forged(provider, claims=(), header=(), signature="c2ln"):
    """A token nobody signed."""
    head = {"alg": "RS256", "kid": "r1", **dict(header)}
    return f"{segment(head)}.{segment({**provider.claims(), **dict(claims)})}.{signature}"
