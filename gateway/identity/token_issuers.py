"""Tokens of identity providers (JWT, RFC 7519) in place of keys: verified once, then cached until they expire.

A token's claims are trusted only after its signature, issuer, audience and times have been verified (RFC 8725).
"""

import asyncio
import hashlib
import math
import re
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import jwt

from contracts.access.identity import MAX_USER_LENGTH, Identity
from contracts.errors import AuthenticationFailed, PermissionDenied
from contracts.serving.configuration import IssuerSpec, KeyEntry, Snapshot
from gateway.identity.guess_limit import UnknownCredential
from gateway.identity.issuer_documents import IssuerDocuments
from gateway.identity.signing_keys import SigningKeys
from gateway.request.clock import Clock

MAX_REMEMBERED: Final = 10_000
LEEWAY_SECONDS: Final = 30  # between the provider's clock and ours
_MAX_TOKEN_LENGTH: Final = 16 * 1024
_MAX_SHOWN: Final = 100
_LATEST_UNIX: Final = 253_402_300_799  # the end of the year 9999, which is as far as dates can be written
_SLUG: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)  # as the control plane has it
_REQUIRED: Final = ["iss", "sub", "aud", "exp"]

Claims = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Issuer:
    spec: IssuerSpec
    keys: SigningKeys


@dataclass(frozen=True, slots=True)
class _Verified:
    """A token that was found good, with what that rests on."""

    entry: KeyEntry
    from_ns: int  # Unix
    until_ns: int
    keys: SigningKeys
    generation: int


class TokenIssuers:
    """Builds key entries from tokens. The 10,000 most recently used valid tokens are cached by digest."""

    def __init__(self, clock: Clock, stale_seconds: float, max_remembered: int = MAX_REMEMBERED) -> None:
        self._clock = clock
        self._stale_seconds = stale_seconds
        self._max_remembered = max_remembered
        self._documents = IssuerDocuments()
        self._specs: tuple[IssuerSpec, ...] = ()
        self._issuers: dict[str, list[_Issuer]] = {}
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()

    def known(self, token: str, snapshot: Snapshot) -> KeyEntry | None:
        """Return the cached entry of a verified token, `None` if it must be verified.

        Raises AuthenticationFailed or PermissionDenied if its tenant was deleted or deactivated since.
        """
        if snapshot.issuers is not self._specs:
            self._adopt(snapshot.issuers)
        digest = _digest_of(token)
        found = self._verified.get(digest)
        if found is None:
            return None
        if not (
            found.from_ns <= self._clock.wall_ns() < found.until_ns
            and found.generation == found.keys.generation
            and found.keys.is_fresh
        ):
            del self._verified[digest]
            return None
        self._verified.move_to_end(digest)
        if snapshot.tenants:
            _check_tenant(found.entry.identity.tenant, snapshot)
        return found.entry

    async def verify(self, token: str, snapshot: Snapshot) -> KeyEntry:
        """Verify a token and return its entry; may wait for one fetch of its issuer's keys.

        Raises UnknownCredential if no known issuer signed it, AuthenticationFailed if its issuer did but it is not
        valid here, PermissionDenied for an inactive tenant, Unavailable if keys cannot be fetched.
        """
        if snapshot.issuers is not self._specs:
            self._adopt(snapshot.issuers)
        verified = self._verified  # the issuers may change while keys are fetched: then it is not remembered
        header, claimed = _read(token)
        issuer = self._issuer_of(claimed)
        key = await _key_for(header, issuer)
        claims = _check_signature(token, key, issuer.spec)
        from_s, until_s = _check_times(claims, self._clock.wall_ns() / 1e9)
        digest = _digest_of(token)
        entry = KeyEntry(
            digest=digest,
            identity=_identity(claims, issuer.spec),
            expires_at_ns=int(until_s * 1e9),
            models=issuer.spec.models,
            endpoints=issuer.spec.endpoints,
            policy=issuer.spec.policy,
        )
        if snapshot.tenants:
            _check_tenant(entry.identity.tenant, snapshot)
        verified[digest] = _Verified(entry, int(from_s * 1e9), int(until_s * 1e9), issuer.keys, issuer.keys.generation)
        if len(verified) > self._max_remembered:
            verified.popitem(last=False)
        return entry

    async def refresh(self, specs: tuple[IssuerSpec, ...]) -> None:
        """Adopt the issuers of a snapshot and fetch the keys that are due. Never raises."""
        if specs is not self._specs:
            self._adopt(specs)
        await asyncio.gather(*(issuer.keys.refresh() for issuer in self._all()))

    def status(self) -> dict[str, object]:
        """Return the state of each issuer's keys."""
        return {issuer.spec.issuer: issuer.keys.status() for issuer in self._all()}

    async def close(self) -> None:
        """Cancel fetches in progress and close the connections."""
        await asyncio.gather(*(issuer.keys.close() for issuer in self._all()))
        await self._documents.close()

    def _all(self) -> list[_Issuer]:
        return [issuer for named in self._issuers.values() for issuer in named]

    def _adopt(self, specs: tuple[IssuerSpec, ...]) -> None:
        """Adopt a snapshot's issuers. Keys of unchanged ones are kept; tokens are dropped if any changed."""
        changed = specs != self._specs
        self._specs = specs
        if not changed:
            return
        sources = {(issuer.spec.issuer, issuer.spec.keys_url): issuer.keys for issuer in self._all()}
        self._issuers = {}
        self._verified = OrderedDict()
        for spec in specs:
            place = (spec.issuer, spec.keys_url)
            if place not in sources:
                sources[place] = SigningKeys(spec, self._documents, self._clock, self._stale_seconds)
            self._issuers.setdefault(spec.issuer, []).append(_Issuer(spec, sources[place]))

    def _issuer_of(self, claims: Claims) -> _Issuer:
        """Return the issuer that a token names; of several with that name, the one with its audience."""
        name = claims.get("iss")
        named = self._issuers.get(name) if isinstance(name, str) else None
        if not named:
            shown = repr(name[:_MAX_SHOWN]) if isinstance(name, str) else "missing"
            raise UnknownCredential(f"the token's issuer ('iss') is {shown}, which is not known here")
        audiences = _audiences(claims)
        return next((issuer for issuer in named if issuer.spec.audience in audiences), named[0])


def _digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _read(token: str) -> tuple[dict[str, Any], Claims]:
    """Return a token's header and claims, not yet verified."""
    if len(token) > _MAX_TOKEN_LENGTH:
        raise UnknownCredential(f"the token has {len(token)} characters; at most {_MAX_TOKEN_LENGTH} are read")
    try:
        read = jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise UnknownCredential("the token is malformed; it must be a signed JWT of three parts") from None
    return read["header"], read["payload"]


async def _key_for(header: dict[str, Any], issuer: _Issuer) -> jwt.PyJWK:
    """Return the key that a token names, fetching its issuer's keys again if it is unknown."""
    spec, keys = issuer.spec, issuer.keys
    algorithm, key_id = header.get("alg"), header.get("kid", "")
    if not isinstance(algorithm, str) or algorithm not in spec.algorithms:
        shown = repr(algorithm[:20]) if isinstance(algorithm, str) else "missing"
        accepted = ", ".join(spec.algorithms)
        raise UnknownCredential(f"the token's signature algorithm ('alg') is {shown}; accepted: {accepted}")
    if not isinstance(key_id, str):
        raise UnknownCredential("the token's key id ('kid') is not a text")
    key = keys.find(key_id, algorithm)
    if key is None and (key_id or not keys.is_fresh):
        await keys.look_again()
        key = keys.find(key_id, algorithm)
    if key is not None:
        return key
    if not keys.is_fresh:
        raise keys.unavailable()
    if not key_id:
        raise UnknownCredential("the token names no key ('kid'), and its issuer has not exactly one that fits")
    raise UnknownCredential(f"the token's key ('kid') is not among its issuer's, which were {keys.last_look()}")


def _check_signature(token: str, key: jwt.PyJWK, spec: IssuerSpec) -> Claims:
    """Return the claims of a token whose signature, issuer and audience are right."""
    try:
        claims: Claims = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=spec.audience,
            issuer=spec.issuer,
            # Times are checked by our clock, below.
            options={"require": _REQUIRED, "verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
    except jwt.InvalidAudienceError:
        raise AuthenticationFailed(f"the token is for another audience; 'aud' must name {spec.audience!r}") from None
    except jwt.MissingRequiredClaimError as error:
        raise AuthenticationFailed(f"the token has no claim {error.claim!r}, which is needed") from None
    except jwt.InvalidSignatureError:
        raise UnknownCredential("the token's signature does not match its issuer's key") from None
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise UnknownCredential("the token is malformed; it must be a JWT signed by its issuer") from None
    return claims


def _check_times(claims: Claims, now: float) -> tuple[float, float]:
    """Return the start and end of a token's validity (Unix seconds), including leeway, if it is valid now."""
    expires = _moment(claims, "exp")
    begins = _moment(claims, "nbf") if "nbf" in claims else 0.0
    if now >= expires + LEEWAY_SECONDS:
        raise AuthenticationFailed(f"the token expired at {_written(expires)}; get a new one from its issuer")
    if now < begins - LEEWAY_SECONDS:
        raise AuthenticationFailed(f"the token is not valid before {_written(begins)}")
    return max(begins - LEEWAY_SECONDS, 0.0), expires + LEEWAY_SECONDS


def _moment(claims: Claims, name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST_UNIX:
        raise AuthenticationFailed(f"the token's claim {name!r} is not a time in seconds since 1970")
    return float(value)


def _written(unix_seconds: float) -> str:
    return datetime.fromtimestamp(math.floor(unix_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _identity(claims: Claims, spec: IssuerSpec) -> Identity:
    """Return the payer of a token.

    Its key id is the same for all tokens of a subject, so limits by key apply; because a key has one payer, it differs
    if tokens name another team or project.
    """
    tenant = spec.tenant or _slug(claims, spec.tenant_claim)
    team = _slug(claims, spec.team_claim) if spec.team_claim else ""
    project = _slug(claims, spec.project_claim) if spec.project_claim else ""
    bearer = "\n".join((spec.issuer, _text(claims, "sub"), tenant, team, project))
    return Identity(
        tenant=tenant,
        team=team,
        project=project,
        key_id=f"jwt:{hashlib.sha256(bearer.encode()).hexdigest()[:24]}",
        user=_text(claims, spec.user_claim) if spec.user_claim else "",
    )


def _text(claims: Claims, name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_USER_LENGTH or not value.isprintable():
        found = "is missing" if value is None else "is not one"
        limit = f"a printable text of 1 to {MAX_USER_LENGTH} characters"
        raise AuthenticationFailed(f"the token's claim {name!r} must be {limit}; it {found}")
    return value


def _slug(claims: Claims, name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or _SLUG.fullmatch(value) is None:
        found = "is missing" if value is None else "is not one"
        limit = "an id of at most 63 small letters, digits and '-'"
        raise AuthenticationFailed(f"the token's claim {name!r} must be {limit}; it {found}")
    return value


def _audiences(claims: Claims) -> list[object]:
    stated = claims.get("aud")
    return stated if isinstance(stated, list) else [stated]


def _check_tenant(tenant: str, snapshot: Snapshot) -> None:
    found = snapshot.tenants.get(tenant)
    if found is None:
        raise AuthenticationFailed(f"the token is for the tenant {tenant!r}, which does not exist here")
    if not found.is_active:
        raise PermissionDenied(f"the tenant {tenant!r} is not active; its administrators can say why")
