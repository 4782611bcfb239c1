"""The id of an installation, stored with its secrets, by which stores and Redis servers are matched to it."""

import hashlib
import re
from typing import Final

from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError

INSTALLATION_ID: Final = "installation_id"
_DIGITS: Final = 24
_FORM: Final = re.compile(r"[A-Za-z0-9_-]{8,64}")


def installation_id(secrets: SecretFiles) -> str:
    """Return the installation's id; empty if none is stored here. Raises ConfigurationError if the file is invalid."""
    text = secrets.get(INSTALLATION_ID) or ""
    if text and not _FORM.fullmatch(text):
        raise ConfigurationError(
            f"{secrets.directory / INSTALLATION_ID} must hold 8 to 64 letters, digits, '_' or '-', as the migrations "
            "wrote it; put the file back from your copy of the secrets directory"
        )
    return text


def keep_installation_id(secrets: SecretFiles, pepper: str) -> str:
    """Return the installation's id; create and store it if there is none.

    It is derived from the key pepper, so machines with the same secrets compute the same id. Raises ConfigurationError
    if it cannot be written.
    """
    known = installation_id(secrets)
    if not known:
        known = hashlib.sha256(f"tollkeeper installation\n{pepper}".encode()).hexdigest()[:_DIGITS]
        secrets.replace(INSTALLATION_ID, known)
    return known
