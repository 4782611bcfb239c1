"""Signatures of record batches, by which the collector recognises gateways.

A signature covers the batch id and the records themselves, not the transmitted bytes, so that it is valid over HTTP and
gRPC, in protobuf and JSON, and behind another collector that merges several requests into one.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

SIGNING_KEY: Final = "record_signing_key"  # name of the secret file
_PURPOSE: Final = b"tollkeeper records 1\n"


def digest_of_records(records: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Return a digest of ordered records: event name, time in Unix nanoseconds, packed record."""
    digest = hashlib.sha256()
    for event_name, time_unix_nano, packed in records:
        name = event_name.encode()
        digest.update(b"%d %d %d\n" % (len(name), time_unix_nano, len(packed)))
        digest.update(name)
        digest.update(packed)
    return digest.digest()


def signature_of_batch(key: bytes, batch_id: str, digest: bytes) -> str:
    """Return HMAC-SHA-256 over a batch's id and the digest of its records, in hexadecimal."""
    return hmac.digest(key, _PURPOSE + digest + batch_id.encode(), hashlib.sha256).hex()


def is_signature_of(signature: str, key: bytes, batch_id: str, digest: bytes) -> bool:
    """Return whether a signature is valid for this key, batch id and digest."""
    return hmac.compare_digest(signature.encode(), signature_of_batch(key, batch_id, digest).encode())
