"""Derive request ids from the names of vLLM's sequences."""

import hashlib
import re
from typing import Final

# This host names a request by its id in hex; vLLM adds a choice's number in front and eight random digits at the end.
_OURS: Final = re.compile(r"(?:\d+_)?(?P<id>[0-9a-f]{32})(?:-[0-9a-f]{8})?")
# `vllm serve` names a request by its x-request-id, which gateways send: chatcmpl-UUID, cmpl-UUID-0, ...
_GATEWAYS: Final = re.compile(
    r"(?:\d+_)?[a-z_]+-(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-\d{1,4})?(?:-[0-9a-f]{8})?"
)
_THEIRS: Final = re.compile(r"(?:\d+_)?(?P<id>.+?)(?:-[0-9a-f]{8})?")
_ID_BYTES: Final = 16


def request_id_of(name: str) -> bytes:
    """Return the request's 16 bytes; for a name of another format, a hash that is the same for all its choices."""
    ours = _OURS.fullmatch(name)
    if ours is not None:
        return bytes.fromhex(ours["id"])
    gateways = _GATEWAYS.fullmatch(name)
    if gateways is not None:
        return bytes.fromhex(gateways["id"].replace("-", ""))
    theirs = _THEIRS.fullmatch(name)
    text = theirs["id"] if theirs is not None else name
    return hashlib.blake2b(text.encode(), digest_size=_ID_BYTES).digest()
