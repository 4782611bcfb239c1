"""A price list that must be signed is taken only as its signer wrote it."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from backends.signatures import check_signature
from contracts.errors import ConfigurationError


def public_pem(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_only_what_the_key_signed_is_accepted(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    text, signature, public = (tmp_path / name for name in ("list.json", "list.sig", "key.pem"))
    text.write_bytes(b'{"a": {}}')
    signature.write_bytes(key.sign(text.read_bytes()))
    public.write_bytes(public_pem(key))
    check_signature(text, signature, public)
    with pytest.raises(ConfigurationError, match="has no signature"):
        check_signature(text, None, public)
    public.write_bytes(public_pem(Ed25519PrivateKey.generate()))
    with pytest.raises(ConfigurationError, match="is of another key"):
        check_signature(text, signature, public)
    public.write_bytes(public_pem(key))
    text.write_bytes(b'{"b": {}}')
    with pytest.raises(ConfigurationError, match="was changed after it was signed"):
        check_signature(text, signature, public)
    public.write_bytes(b"no key")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        check_signature(text, signature, public)
