"""Who is calling: a bearer key becomes an identity, without a database and in about two microseconds."""

import hashlib
import hmac

from contracts.configuration import KeyEntry, Snapshot
from contracts.errors import AuthenticationFailed, ControlUnavailable
from contracts.keys import digest_of, is_well_formed
from gateway.clock import Clock
from gateway.directory import Directory


class Authenticator:
    """Finds keys in the directory's current snapshot."""

    def __init__(self, directory: Directory, pepper: bytes, salt_secret: bytes, clock: Clock) -> None:
        self._directory = directory
        self._pepper = pepper
        self._salt_secret = salt_secret
        self._clock = clock
        self._salts: dict[str, str] = {}

    def authenticate(self, authorization: str, snapshot: Snapshot) -> KeyEntry:
        """Give the key's entry. Raises AuthenticationFailed, saying what is wrong but never the key."""
        scheme, _, key = authorization.partition(" ")
        if not authorization:
            raise AuthenticationFailed("no API key was sent; add the header 'Authorization: Bearer tk-...'")
        if scheme.lower() != "bearer":
            raise AuthenticationFailed("the Authorization header must be 'Bearer' and an API key")
        key = key.strip()
        if not is_well_formed(key):
            raise AuthenticationFailed("the API key is malformed; keys are 'tk-' and 43 letters, digits, '-' or '_'")
        if self._directory.is_too_old:
            raise ControlUnavailable("keys cannot be checked: the control-plane database has been away too long")
        entry = snapshot.keys.get(digest_of(key, self._pepper))
        now_ns = self._clock.wall_ns()
        if entry is None or (entry.revoked_at_ns is not None and entry.revoked_at_ns <= now_ns):
            raise AuthenticationFailed("the API key is unknown or has been revoked; ask for a new one")
        if entry.expires_at_ns is not None and entry.expires_at_ns <= now_ns:
            raise AuthenticationFailed("the API key has expired; ask for a new one")
        return entry

    def cache_salt(self, tenant: str) -> str:
        """Give the tenant's KV-cache salt: HMAC(secret, tenant), so that no cached block crosses tenants."""
        salt = self._salts.get(tenant)
        if salt is None:
            salt = hmac.digest(self._salt_secret, tenant.encode(), hashlib.sha256).hex()[:32]
            self._salts[tenant] = salt
        return salt
