"""An identity provider's signing keys: fetched over HTTP, cached, and fetched again if a token names an unknown one.

A provider may rotate its keys at any time, so an unknown key id triggers a fetch; strangers may invent key ids at any
rate, so there is at most one fetch in ten seconds.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm

from contracts.errors import TollkeeperError, Unavailable
from contracts.serving.configuration import IssuerSpec
from gateway.identity.issuer_documents import IssuerDocuments
from gateway.request.clock import Clock

_log = logging.getLogger(__name__)

REFRESH_NS: Final = 300_000_000_000  # how long a withdrawn key may work on
LEAST_INTERVAL_NS: Final = 10_000_000_000
_MAX_WAITING: Final = 64  # for one fetch; whoever forges key ids does not hold more of our connections
_MAX_KEYS: Final = 100
# What a public key is made of (RFC 7518, section 6; RFC 8037): nothing else of a document is kept.
_MEMBERS: Final = ("kty", "n", "e", "crv", "x", "y", "kid", "alg", "use")

Jwk = dict[str, str]


class SigningKeys:
    """The signing keys of one issuer. `generation` changes if a key was removed."""

    def __init__(self, spec: IssuerSpec, documents: IssuerDocuments, clock: Clock, stale_seconds: float) -> None:
        self._issuer = spec.issuer
        self._keys_url = spec.keys_url
        self._documents = documents
        self._clock = clock
        self._stale_ns = round(stale_seconds * 1e9)
        self._keys: list[Jwk] = []
        self._ready: dict[tuple[object, str], jwt.PyJWK | None] = {}  # by key and algorithm
        self._fetched_ns: int | None = None  # monotonic, as are the others
        self._asked_ns: int | None = None
        self._fetch: asyncio.Task[None] | None = None
        self._waiting = 0
        self.generation = 0
        self.problem = ""

    @property
    def is_fresh(self) -> bool:
        """Return whether the keys were fetched, and are not older than allowed while the provider is unreachable."""
        if self._fetched_ns is None:
            return False
        return self._clock.monotonic_ns() - self._fetched_ns <= REFRESH_NS + self._stale_ns

    def find(self, key_id: str, algorithm: str) -> jwt.PyJWK | None:
        """Return the key with that id that can verify this algorithm; `None` if there is none, or if all keys are too
        old.

        A token that names no key is verified with the only matching key, if there is exactly one.
        """
        if not self.is_fresh:
            return None
        fitting = [key for key in self._keys if key.get("kid", "") == key_id] if key_id else self._keys
        found = [ready for key in fitting if (ready := self._ready_key(key, algorithm)) is not None]
        return found[0] if len(found) == 1 or (key_id and found) else None

    async def look_again(self) -> None:
        """Fetch the keys, or wait for the fetch in progress; return at once if the last one was too recent.

        Never raises: `find` and `refusal` show the result.
        """
        if self._fetch is None:
            if self._pause_ns > 0:
                return
            self._asked_ns = self._clock.monotonic_ns()
            self._fetch = asyncio.create_task(self._fetch_once(), name="signing keys")
        elif self._waiting >= _MAX_WAITING:
            return
        self._waiting += 1
        try:
            await asyncio.shield(self._fetch)  # a client that leaves does not take the fetch from the others
        finally:
            self._waiting -= 1

    async def refresh(self) -> None:
        """Fetch the keys if they are due. Never raises."""
        fetched = self._fetched_ns
        if fetched is None or self._clock.monotonic_ns() - fetched >= REFRESH_NS:
            await self.look_again()

    def unavailable(self) -> Unavailable:
        """Return the error for a token that cannot be verified because the keys cannot be fetched."""
        return Unavailable(
            f"tokens of the issuer {self._issuer!r} cannot be verified: its signing keys cannot be fetched at present",
            code="issuer_unavailable",
            retry_after_seconds=max(self._pause_ns / 1e9, 1.0),
        )

    def last_look(self) -> str:
        """Describe in words when the keys were last fetched, and when they are fetched next."""
        asked_ns = self._clock.monotonic_ns() - (self._asked_ns or 0)
        again = f" and again in {self._pause_ns / 1e9:.0f} s at the earliest" if self._pause_ns > 0 else ""
        return f"looked up {asked_ns / 1e9:.0f} s ago{again}"

    def status(self) -> dict[str, object]:
        """Return the state that GET /ready shows."""
        fetched = self._fetched_ns
        age = None if fetched is None else round((self._clock.monotonic_ns() - fetched) / 1e9, 1)
        return {"keys": len(self._keys), "age_seconds": age, "is_fresh": self.is_fresh, "problem": self.problem}

    async def close(self) -> None:
        """Cancel the fetch in progress."""
        if self._fetch is not None:
            self._fetch.cancel()
            await asyncio.gather(self._fetch, return_exceptions=True)

    @property
    def _pause_ns(self) -> int:
        """Return how long there will be no other fetch."""
        if self._asked_ns is None:
            return 0
        return max(self._asked_ns + LEAST_INTERVAL_NS - self._clock.monotonic_ns(), 0)

    async def _fetch_once(self) -> None:
        try:
            url = self._keys_url or await self._discovered_url()
            keys = _public_keys(await self._documents.get(url))
        except TollkeeperError as error:
            if not self.problem:
                _log.warning("signing keys cannot be fetched", extra={"issuer": self._issuer, "reason": error.message})
            self.problem = error.message
        except Exception:  # the edge of the fetching: its task must end in a state that find can tell
            _log.exception("signing keys cannot be fetched", extra={"issuer": self._issuer})
            self.problem = "the gateway failed to read them; see its log"
        else:
            if any(key not in keys for key in self._keys):
                self.generation += 1
            self._keys = keys
            self._ready = {}
            self._fetched_ns = self._clock.monotonic_ns()
            self.problem = ""
        finally:
            self._fetch = None

    async def _discovered_url(self) -> str:
        """Find the URL of the keys (OpenID Connect Discovery 1.0, section 4)."""
        document = await self._documents.get(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        url = document.get("jwks_uri")
        if document.get("issuer") != self._issuer:  # section 4.3: else another provider could pass for this one
            raise Unavailable("the discovery document is not this issuer's: its 'issuer' differs")
        if not isinstance(url, str):
            raise Unavailable("the discovery document has no 'jwks_uri'")
        if self._issuer.startswith("https:") and not url.startswith("https:"):
            raise Unavailable("the discovery document of an https issuer sends to keys that are not under https")
        return url

    def _ready_key(self, key: Jwk, algorithm: str) -> jwt.PyJWK | None:
        place = (tuple(key.items()), algorithm)
        if place not in self._ready:
            self._ready[place] = _usable(key, algorithm)
        return self._ready[place]


def _public_keys(document: Mapping[str, Any]) -> list[Jwk]:
    """Return the asymmetric signature keys of a JWK set (RFC 7517). Raises Unavailable if it is not one."""
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise Unavailable("the key set has no list 'keys'")
    if len(listed) > _MAX_KEYS:
        raise Unavailable(f"the key set has {len(listed)} keys; at most {_MAX_KEYS} are read")
    keys: list[Jwk] = []
    for entry in listed:
        if isinstance(entry, dict) and entry.get("kty") in ("RSA", "EC", "OKP") and entry.get("use", "sig") == "sig":
            keys.append({name: value for name in _MEMBERS if isinstance(value := entry.get(name), str)})
    return keys


def _usable(key: Jwk, algorithm: str) -> jwt.PyJWK | None:
    """Create a key ready for one algorithm; `None` if it is for another, too short, or not to be read."""
    if key.get("alg", algorithm) != algorithm:
        return None
    try:
        ready = jwt.PyJWK(dict(key), algorithm)  # refuses a key of another kind
        material = ready.Algorithm.prepare_key(ready.key)  # holds the curve to the algorithm's
        return None if ready.Algorithm.check_key_length(material) else ready
    except (jwt.PyJWTError, UnsupportedAlgorithm, KeyError, TypeError, ValueError):
        return None
