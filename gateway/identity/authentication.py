"""Authenticates a request by its key, or by an identity provider's token.

It uses no database, and takes a few microseconds for a known key or token. The verification of new tokens is in
`gateway/identity/token_issuers.py`.
"""

import asyncio
import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from backends.network.network_addresses import Address
from backends.processes.beat import until_beat
from contracts.access.keys import KEY_PREFIX, digest_of, is_well_formed
from contracts.errors import (
    AddressNotAllowed,
    AuthenticationFailed,
    ControlUnavailable,
    LimitExceeded,
    PermissionDenied,
)
from contracts.serving.configuration import KeyEntry, Snapshot
from gateway.config.directory import Directory
from gateway.identity.caller_address import AddressRanges, TrustedProxies
from gateway.identity.guess_limit import GuessLimit, UnknownCredential
from gateway.request.clock import Clock
from gateway.wire.exchange import Exchange

if TYPE_CHECKING:
    from gateway.identity.token_issuers import TokenIssuers

_KEY_HEADERS: Final = (b"x-api-key", b"api-key", b"x-goog-api-key")  # Anthropic's SDK, Azure's and Google's
_TICK_SECONDS: Final = 1.0
_MAX_RECENT: Final = 10_000  # keys: about 3 MB


@dataclass(frozen=True, slots=True)
class AuthenticationLimits:
    """Settings of authentication. `trusted_proxies` are comma-separated networks. `stale_issuer_keys_seconds` is how
    long the signing keys of an identity provider stay valid while it is unreachable. The others limit failures per
    address.
    """

    trusted_proxies: str = ""
    invalid_keys_per_minute: int = 30  # by address
    stale_issuer_keys_seconds: float = 3600.0


class Authenticator:
    """Authenticates keys and issuers' tokens by a snapshot, and enforces their allowed addresses."""

    def __init__(
        self,
        directory: Directory,
        pepper: bytes,
        salt_secret: bytes,
        clock: Clock,
        limits: AuthenticationLimits = AuthenticationLimits(),
    ) -> None:
        self._directory = directory
        self._pepper = pepper
        self._salt_secret = salt_secret
        self._clock = clock
        self._limits = limits
        self._proxies = TrustedProxies(limits.trusted_proxies)
        self._ranges = AddressRanges()
        self._guesses = GuessLimit(limits.invalid_keys_per_minute)
        self._tokens: TokenIssuers | None = None
        self._salts: dict[str, str] = {}
        # By `RequestHead.authorization`, of the keys that came so under one snapshot: no digest is worked out again.
        self._recent: dict[bytes, KeyEntry] = {}
        self._recent_of: Snapshot | None = None

    def recognise(self, exchange: Exchange, snapshot: Snapshot) -> KeyEntry | None:
        """Return the caller's entry if it is known immediately; `None` for a token that `verify` must check.

        Raises the credential's error, which never contains the credential: AuthenticationFailed, AddressNotAllowed,
        PermissionDenied, or LimitExceeded if too many unknown credentials came from one address.
        """
        sent = exchange.head.authorization
        entry = self._recent.get(sent) if snapshot is self._recent_of else None
        if entry is not None and self._holds(entry, snapshot):
            if entry.policy.addresses is not None:
                self._check_address(entry.policy.addresses, exchange)
            return entry
        credential = _credential_of(exchange)
        if snapshot.issuers and _is_token(credential):
            entry = None if self._tokens is None else self._tokens.known(credential, snapshot)
            if entry is None:
                return None
            self._check_freshness()
        else:
            try:
                entry = self._key_entry(credential, snapshot)
            except UnknownCredential as failure:
                raise self._counted(failure, exchange) from None
            if sent:
                self._remember(sent, entry, snapshot)
        if entry.policy.addresses is not None:
            self._check_address(entry.policy.addresses, exchange)
        return entry

    def known(self, sent: bytes, snapshot: Snapshot) -> KeyEntry | None:
        """Return the entry of a key that was accepted before and may be used from every address; `None` for other
        credentials.
        """
        entry = self._recent.get(sent) if snapshot is self._recent_of else None
        if entry is None or entry.policy.addresses is not None or not self._holds(entry, snapshot):
            return None
        return entry

    async def verify(self, exchange: Exchange, snapshot: Snapshot) -> KeyEntry:
        """Verify the caller's token and return its entry. May wait for its issuer's keys; raises as `recognise` does.

        Raises Unavailable if the issuer's keys cannot be fetched.
        """
        self._check_freshness()
        tokens = self._tokens or await self._load_token_issuers()
        try:
            entry = await tokens.verify(_credential_of(exchange), snapshot)
        except UnknownCredential as failure:
            raise self._counted(failure, exchange) from None
        if entry.policy.addresses is not None:
            self._check_address(entry.policy.addresses, exchange)
        return entry

    def authenticate(self, authorization: str, snapshot: Snapshot) -> KeyEntry:
        """Return a key's entry. Raises AuthenticationFailed, saying what is wrong but never the key."""
        if not authorization:
            raise _nothing_sent()
        return self._key_entry(_bearer_of(authorization), snapshot)

    async def run(self) -> None:
        """Keep the issuers' signing keys fresh until cancelled."""
        try:
            while True:
                issuers = self._directory.snapshot.issuers
                if issuers or self._tokens is not None:
                    tokens = self._tokens or await self._load_token_issuers()
                    await tokens.refresh(issuers)
                await asyncio.sleep(until_beat(_TICK_SECONDS))
        finally:
            if self._tokens is not None:
                await self._tokens.close()

    def status(self) -> dict[str, object]:
        """Return the state that GET /ready shows: throttled guesses, and the state of each issuer's keys."""
        issuers = {} if self._tokens is None else self._tokens.status()
        return {"refused_key_guesses": self._guesses.refused, "issuers": issuers}

    def cache_salt(self, tenant: str) -> str:
        """Return the tenant's KV-cache salt: HMAC(secret, tenant), so that no cached block crosses tenants."""
        salt = self._salts.get(tenant)
        if salt is None:
            salt = hmac.digest(self._salt_secret, tenant.encode(), hashlib.sha256).hex()[:32]
            self._salts[tenant] = salt
        return salt

    def _key_entry(self, key: str, snapshot: Snapshot) -> KeyEntry:
        if not is_well_formed(key):
            raise UnknownCredential("the API key is malformed; keys are 'tk-' and 43 letters, digits, '-' or '_'")
        self._check_freshness()
        entry = snapshot.keys.get(digest_of(key, self._pepper))
        now_ns = self._clock.wall_ns()
        if entry is None or (entry.revoked_at_ns is not None and entry.revoked_at_ns <= now_ns):
            raise UnknownCredential("the API key is unknown or has been revoked; ask for a new one")
        if entry.expires_at_ns is not None and entry.expires_at_ns <= now_ns:
            raise AuthenticationFailed("the API key has expired; ask for a new one")
        tenant = snapshot.tenants.get(entry.identity.tenant)
        if tenant is not None and not tenant.is_active:
            raise PermissionDenied(f"the tenant {tenant.id!r} is not active; its administrators can say why")
        return entry

    def _holds(self, entry: KeyEntry, snapshot: Snapshot) -> bool:
        """Return whether a cached key may be used now."""
        now_ns = self._clock.wall_ns()
        if entry.revoked_at_ns is not None and entry.revoked_at_ns <= now_ns:
            return False
        if entry.expires_at_ns is not None and entry.expires_at_ns <= now_ns:
            return False
        tenant = snapshot.tenants.get(entry.identity.tenant)
        return (tenant is None or tenant.is_active) and not self._directory.is_too_old

    def _remember(self, sent: bytes, entry: KeyEntry, snapshot: Snapshot) -> None:
        if snapshot is not self._recent_of or len(self._recent) >= _MAX_RECENT:
            self._recent_of, self._recent = snapshot, {}
        self._recent[sent] = entry

    def _check_freshness(self) -> None:
        if self._directory.is_too_old:
            raise ControlUnavailable("keys cannot be checked: the control-plane database has been away too long")

    def _check_address(self, ranges: tuple[str, ...], exchange: Exchange) -> None:
        address = self._address_of(exchange)
        if not self._ranges.allow(address, ranges):
            named = f"the address {address}" if address is not None else "an address that its proxy does not tell"
            raise AddressNotAllowed(
                f"the API key or token may not be used from {named}: it is bound to certain networks; "
                "call from one of them, or ask for a key for this one"
            )

    def _counted(self, failure: UnknownCredential, exchange: Exchange) -> AuthenticationFailed | LimitExceeded:
        return self._guesses.answer_to(failure, self._address_of(exchange), self._clock.monotonic_ns())

    def _address_of(self, exchange: Exchange) -> Address | None:
        return self._proxies.caller_of(exchange.address, exchange.header(b"x-forwarded-for"))

    async def _load_token_issuers(self) -> "TokenIssuers":
        # In a thread: cryptography and an HTTP client take a tenth of a second to import, which requests with keys
        # must not wait for, and memory that a gateway without issuers keeps.
        kind = await asyncio.to_thread(_import_token_issuers)
        if self._tokens is None:
            self._tokens = kind(self._clock, self._limits.stale_issuer_keys_seconds)
        return self._tokens


def _import_token_issuers() -> "type[TokenIssuers]":
    from gateway.identity.token_issuers import TokenIssuers  # here: see _load_token_issuers

    return TokenIssuers


def _is_token(credential: str) -> bool:
    return not credential.startswith(KEY_PREFIX) and credential.count(".") == 2


def _credential_of(exchange: Exchange) -> str:
    """Return the key or token as it was sent. If there is an Authorization header, only that counts."""
    if authorization := exchange.header(b"authorization"):
        return _bearer_of(authorization)
    for name in _KEY_HEADERS:
        if credential := exchange.header(name).strip():
            return credential
    raise _nothing_sent()


def _bearer_of(authorization: str) -> str:
    scheme, _, credential = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise AuthenticationFailed("the Authorization header must be 'Bearer' and an API key")
    return credential.strip()


def _nothing_sent() -> AuthenticationFailed:
    return AuthenticationFailed("no API key was sent; add the header 'Authorization: Bearer tk-...'")
