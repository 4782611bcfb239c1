"""The name of an installation, beside its secrets: what a store or a Redis server is told apart from another's by."""

import hashlib
import re
from typing import Final

from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError

INSTALLATION_ID: Final = "installation_id"
_DIGITS: Final = 24
_FORM: Final = re.compile(r"[A-Za-z0-9_-]{8,64}")


def installation_id(secrets: SecretFiles) -> str:
    """Return the installation's id, "" if none is known here. Raise ConfigurationError if the file holds no id."""
    text = secrets.get(INSTALLATION_ID) or ""
    if text and not _FORM.fullmatch(text):
        raise ConfigurationError(
            f"{secrets.directory / INSTALLATION_ID} must hold 8 to 64 letters, digits, '_' or '-', as the migrations "
            "wrote it; put the file back from your copy of the secrets directory"
        )
    return text


def keep_installation_id(secrets: SecretFiles, pepper: str) -> str:
    """Return the installation's id, written down first if it is not known here.

    It is derived from the key pepper, so machines that were given the same secrets find the same id. Raise
    ConfigurationError if it cannot be written.
    """
    known = installation_id(secrets)
    if not known:
        known = hashlib.sha256(f"tollkeeper installation\n{pepper}".encode()).hexdigest()[:_DIGITS]
        secrets.replace(INSTALLATION_ID, known)
    return known
