"""Passwords of people: hashed with Argon2id, and checked in the same time whether or not the account exists.

The parameters are those of RFC 9106, section 4, second choice (64 MiB, three passes, four lanes).
"""

from functools import cache
from typing import TYPE_CHECKING, Final

from contracts.errors import InvalidRequest

if TYPE_CHECKING:
    from argon2 import PasswordHasher

MIN_LENGTH: Final = 12  # NIST SP 800-63B-4 requires 15 without a second factor, and no composition rules
MAX_LENGTH: Final = 256


@cache
def _hasher() -> "PasswordHasher":
    from argon2 import PasswordHasher  # here: only who signs in needs it
    from argon2.profiles import RFC_9106_LOW_MEMORY

    return PasswordHasher.from_parameters(RFC_9106_LOW_MEMORY)


@cache
def _nobodys() -> str:
    return _hasher().hash("the password of an account that is not there")


def hash_password(password: str) -> str:
    """Return the hash of a password with a random salt. Takes about 50 ms. Raises InvalidRequest for a bad length."""
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise InvalidRequest(
            f"the password has {len(password)} characters; choose {MIN_LENGTH} to {MAX_LENGTH}", param="password"
        )
    return _hasher().hash(password)


def is_password(digest: str | None, presented: str) -> bool:
    """Return whether a password matches a hash. With `None`, for a missing account, it takes as long and
    returns false.
    """
    from argon2.exceptions import InvalidHashError, VerificationError  # here: as above

    if len(presented) > MAX_LENGTH:
        return False
    try:
        _hasher().verify(digest or _nobodys(), presented)
    except (VerificationError, InvalidHashError):
        return False
    return digest is not None
