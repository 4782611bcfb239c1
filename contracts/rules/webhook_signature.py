"""Signature header of webhooks, for receivers to verify."""

import hashlib
import hmac
from typing import Final

SIGNATURE_HEADER: Final = "x-tollkeeper-signature"
EVENT_ID_HEADER: Final = "x-tollkeeper-event-id"


def signature_of(body: bytes, secret: bytes) -> str:
    """Return the signature for the receiver to compare: HMAC-SHA-256 of the body with the installation's webhook
    secret, in hex.
    """
    return "sha256=" + hmac.digest(secret, body, hashlib.sha256).hex()
