"""Ed25519 signatures (RFC 8032) of checkpoints and stubs, through `cryptography`."""

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError

if TYPE_CHECKING:  # imported in functions: it takes 8 MB, which a gateway without an audit log saves
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_FILE: Final = "audit_signing_key"
FORMER_KEYS_FILE: Final = "audit_former_keys"  # PEM: public keys of lost, replaced signing keys
_PEM_END: Final = "-----END PUBLIC KEY-----"
_KEY_ID_DIGITS: Final = 16


class AuditSigner:
    """Signs with the installation's private key, which stays in the secrets directory."""

    def __init__(self, key: "Ed25519PrivateKey") -> None:
        self._key = key
        self.public = AuditPublicKey(key.public_key())

    @classmethod
    def of(cls, secrets: SecretFiles) -> "AuditSigner":
        """Return a signer with the installation's key, which is created if it is missing. Raises ConfigurationError."""
        return cls(_private_key(secrets.get_or_create(KEY_FILE)))

    def sign(self, text: bytes) -> str:
        """Return the signature in hexadecimal."""
        return self._key.sign(text).hex()


class AuditPublicKey:
    """Verifies signatures. `id` is stored with each signature."""

    def __init__(self, key: "Ed25519PublicKey") -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        self._key = key
        raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.id = hashlib.sha256(raw).hexdigest()[:_KEY_ID_DIGITS]

    @property
    def pem(self) -> str:
        """Return the key as PEM, for verification elsewhere."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return self._key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def is_signed(self, text: bytes, signature: str) -> bool:
        """Return whether this key signed a text."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(bytes.fromhex(signature), text)
        except (InvalidSignature, ValueError):
            return False
        return True


class AuditKeys:
    """Trusted public keys by id."""

    def __init__(self, keys: Iterable[AuditPublicKey]) -> None:
        self._keys = {key.id: key for key in keys}

    def has(self, key_id: str) -> bool:
        """Return whether the named key is trusted."""
        return key_id in self._keys

    def is_signed(self, key_id: str, text: bytes, signature: str) -> bool:
        """Return whether the named key is trusted and signed a text."""
        key = self._keys.get(key_id)
        return key is not None and key.is_signed(text, signature)


def own_keys(secrets: SecretFiles) -> AuditKeys:
    """Return the installation's public key and former ones. Raises ConfigurationError if it has none or cannot read
    one.
    """
    found = secrets.get(KEY_FILE)
    if found is None:
        raise ConfigurationError(
            f"{secrets.directory / KEY_FILE} is not there: nothing was audited here yet, or it was removed; name the "
            "public key with --public-key"
        )
    former = (secrets.get(FORMER_KEYS_FILE) or "").split(_PEM_END)[:-1]
    place = secrets.directory / FORMER_KEYS_FILE
    return AuditKeys(
        [AuditSigner(_private_key(found)).public, *(_public_key(f"{pem}{_PEM_END}".encode(), place) for pem in former)]
    )


def read_public_keys(paths: Iterable[Path]) -> AuditKeys:
    """Return the keys in PEM files. Raises ConfigurationError."""
    keys = []
    for path in paths:
        try:
            pem = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"{path} holds no public key that can be read ({type(error).__name__})") from error
        keys.append(_public_key(pem, path))
    return AuditKeys(keys)


def _public_key(pem: bytes, path: Path) -> AuditPublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except ValueError as error:
        raise ConfigurationError(f"{path} holds no public key that can be read ({type(error).__name__})") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigurationError(f"{path} holds another key than Ed25519; `tollkeeper audit key` prints the right one")
    return AuditPublicKey(key)


def _private_key(text: str) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        return Ed25519PrivateKey.from_private_bytes(base64.urlsafe_b64decode(text + "="))
    except ValueError as error:
        raise ConfigurationError(
            f"secret {KEY_FILE!r} is not 256 bits in URL-safe Base64; put back the file it was"
        ) from error
