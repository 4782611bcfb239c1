"""The secret that gateways sign their records with and the collector verifies: from the environment or a file."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from backends.secrets.secret_files import SecretFiles
from contracts.recording.record_signature import SIGNING_KEY

_LEAST_CHARACTERS = 32

RecordKey = Annotated[SecretStr, Field(min_length=_LEAST_CHARACTERS)] | None


def record_key(stated: SecretStr | None, data: Path) -> bytes:
    """Return the key that signs records: the configured one, else the one in the data directory's secrets, created if
    missing.
    """
    if stated is not None:
        return stated.get_secret_value().encode()
    return SecretFiles(data / "secrets").get_or_create(SIGNING_KEY).encode()
