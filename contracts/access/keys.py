"""API keys as text: format, digest, ids. Pure functions; randomness and time are arguments.

A key is `tk-` and 43 URL-safe characters (256 random bits). What is stored is HMAC-SHA-256(pepper, key): the pepper is
in a file and not in the database, so a stolen database alone cannot be searched for keys.
"""

import base64
import hashlib
import hmac
import re
from typing import Final

from contracts.recording.ids import uuid7

KEY_PREFIX: Final = "tk-"
KEY_RANDOM_BYTES: Final = 32
KEY_LENGTH: Final = 46
_HINT_LENGTH: Final = 4
_FORMAT: Final = re.compile(r"tk-[A-Za-z0-9_-]{43}", re.ASCII)


def new_key(random: bytes) -> str:
    """Format 32 random bytes as a key. Raises ValueError on any other number of bytes."""
    if len(random) != KEY_RANDOM_BYTES:
        raise ValueError(f"a key is made of {KEY_RANDOM_BYTES} random bytes, not {len(random)}")
    return KEY_PREFIX + base64.urlsafe_b64encode(random).rstrip(b"=").decode()


def is_well_formed(key: str) -> bool:
    """Return whether a text has the format of a key, so that a flood of nonsense costs no digest and no lookup."""
    return len(key) == KEY_LENGTH and _FORMAT.fullmatch(key) is not None


def digest_of(key: str, pepper: bytes) -> bytes:
    """Return the 32 bytes under which a key is stored and found: HMAC-SHA-256(pepper, key).

    `pepper` is the text of the secret file `key_pepper`, encoded.
    """
    return hmac.digest(pepper, key.encode(), hashlib.sha256)


def hint_of(key: str) -> str:
    """Return the last four characters, by which people distinguish keys."""
    return key[-_HINT_LENGTH:]


def new_key_id(unix_ns: int) -> str:
    """Create a key's id: `key_` and a UUIDv7 in hex, so that keys sort by creation time."""
    return f"key_{uuid7(unix_ns).hex}"
