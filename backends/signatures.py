"""Verifies detached Ed25519 signatures (RFC 8032) of files that an operator provides, such as a price list."""

from pathlib import Path

from contracts.errors import ConfigurationError


def check_signature(path: Path, signature: Path | None, public_key: Path) -> None:
    """Verify that a file was signed with the key. Raises ConfigurationError if not, or if a file cannot be read."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if signature is None:
        raise ConfigurationError(
            f"{path} has no signature, and the key {public_key} must have signed it; name the signature's file"
        )
    try:
        key = load_pem_public_key(public_key.read_bytes())
        text, signed = path.read_bytes(), signature.read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{path}, its signature {signature} or the key {public_key} cannot be read: {type(error).__name__}; the "
            "key is an Ed25519 public key in PEM"
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigurationError(f"{public_key} is no Ed25519 key; make one with `openssl genpkey -algorithm ed25519`")
    try:
        key.verify(signed, text)
    except InvalidSignature as error:
        raise ConfigurationError(
            f"{path} was changed after it was signed, or {signature} is of another key than {public_key}; nothing was "
            "taken from it"
        ) from error
