"""Keyed hashes of prompts and answers, which cannot be compared with guesses without the key."""

import hmac
from typing import Final

from backends.secrets.secret_files import SecretFiles

KEY_FILE: Final = "audit_hash_key"
_DIGEST: Final = "sha256"


class KeyedHash:
    """HMAC-SHA-256 (RFC 2104) under a key of the installation's, with a different key for each tenant.

    Without a key, everybody knows the hash of "yes"; with one key for all, a tenant that can read entries would see who
    else sent the same text.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._begun: dict[str, hmac.HMAC] = {}  # by tenant: a copy is cheaper than processing the key again

    @classmethod
    def of(cls, secrets: SecretFiles) -> "KeyedHash":
        """Return the hash under the installation's key, which is created if it is missing. Raises
        ConfigurationError.
        """
        return cls(secrets.get_or_create(KEY_FILE).encode())

    def digest(self, tenant: str, what: bytes) -> str:
        """Return the hash in 64 hexadecimal digits."""
        begun = self.begin(tenant)
        begun.update(what)
        return begun.hexdigest()

    def begin(self, tenant: str) -> "hmac.HMAC":
        """Return a hash that accepts its text in pieces; the same as `digest` of all of it."""
        begun = self._begun.get(tenant)
        if begun is None:
            key = hmac.digest(self._secret, tenant.encode(), _DIGEST)
            begun = self._begun[tenant] = hmac.new(key, digestmod=_DIGEST)
        return begun.copy()
