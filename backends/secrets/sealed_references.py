"""References to stored keys of the control database in encrypted form: sealed:NAME:TOKEN."""

from typing import Final

from contracts.errors import ConfigurationError

_SEALED: Final = "sealed:"
_STORED: Final = "stored:"


def is_stored(reference: str) -> bool:
    """Return whether a reference is to a stored key, encrypted or not found."""
    return reference.startswith((_SEALED, _STORED))


def shown_reference(reference: str) -> str:
    """Return a reference as users write it, without the encrypted key."""
    if not reference.startswith(_SEALED):
        return reference
    return _STORED + reference.removeprefix(_SEALED).partition(":")[0]


def token_of(reference: str) -> str:
    """Return the encrypted key of a reference. Raises ConfigurationError if no key of that name is stored."""
    if reference.startswith(_STORED):
        name = reference.removeprefix(_STORED)
        raise ConfigurationError(f"no key {name!r} is stored; `tollkeeper secrets put {name}` stores it")
    return reference.removeprefix(_SEALED).partition(":")[2]
