"""Whose a sequence is, by the name that vLLM's scheduler knows it by."""

import hashlib
import re
from typing import Final

# Ours are a request's id in hex; vLLM puts a choice's number before it and eight random digits behind.
_OURS: Final = re.compile(r"(?:\d+_)?(?P<id>[0-9a-f]{32})(?:-[0-9a-f]{8})?")
_THEIRS: Final = re.compile(r"(?:\d+_)?(?P<id>.+?)(?:-[0-9a-f]{8})?")
_ID_BYTES: Final = 16


def request_id_of(name: str) -> bytes:
    """Return the request's 16 bytes; of a name that is none of ours, a digest that all its choices share."""
    ours = _OURS.fullmatch(name)
    if ours is not None:
        return bytes.fromhex(ours["id"])
    theirs = _THEIRS.fullmatch(name)
    text = theirs["id"] if theirs is not None else name
    return hashlib.blake2b(text.encode(), digest_size=_ID_BYTES).digest()
