"""Stores the tokens of refresh grants for all gateways: encrypted, and changed by one gateway at a time."""

import fcntl
import logging
import os
from typing import Any, Final, Protocol

import msgspec

from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError
from contracts.mcp.oauth import AccessGrant

_log = logging.getLogger(__name__)

_NAME: Final = "mcp-token-"

encode_grant: Final = msgspec.json.Encoder().encode
decode_grant: Final = msgspec.json.Decoder(AccessGrant).decode


class TokenStore(Protocol):
    """Store of refresh grants. Methods block and are called from threads. All raise ControlUnavailable or
    ConfigurationError.
    """

    def claim(self, server: str) -> object | None:
        """Return a claim to renew a server's tokens, valid for 30 s; `None` if another process has it."""
        ...

    def read(self, server: str) -> AccessGrant | None:
        """Return the stored tokens; `None` if there are none or they cannot be read."""
        ...

    def keep(self, server: str, grant: AccessGrant) -> None:
        """Replace the stored tokens. They are on disk on return."""
        ...

    def give_back(self, claim: Any) -> None:
        """Release a claim."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


class FileTokenStore:
    """Token store in the secret files of a gateway without a control database, shared by its workers."""

    def __init__(self, secrets: SecretFiles) -> None:
        self._secrets = secrets

    def claim(self, server: str) -> int | None:
        """Lock the server's file and return its descriptor; `None` if it is locked. The lock ends with the process."""
        path = self._secrets.directory / f".{_NAME}{server}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be written ({error.strerror}); choose a writable data directory with --data or "
                "TOLLKEEPER_DATA"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def read(self, server: str) -> AccessGrant | None:
        """Return the tokens in the file."""
        sealed = self._secrets.get(f"{_NAME}{server}")
        return None if sealed is None else opened_grant(sealed, self._sealer(), server)

    def keep(self, server: str, grant: AccessGrant) -> None:
        """Replace the tokens in the file."""
        self._secrets.replace(f"{_NAME}{server}", self._sealer().seal(encode_grant(grant).decode()))

    def give_back(self, claim: Any) -> None:
        """Unlock the file."""
        os.close(claim)

    def close(self) -> None:
        """Do nothing: no file stays open between calls."""

    def _sealer(self) -> Any:
        from backends.control.sealer import Sealer  # here: most gateways have no such tokens, and need no cryptography

        return Sealer.of(self._secrets)


def opened_grant(sealed: str, sealer: Any, server: str) -> AccessGrant | None:
    """Decrypt and return tokens; `None` if that fails, so that the configured refresh token is used again."""
    try:
        return decode_grant(sealer.open(sealed).encode())
    except (ConfigurationError, msgspec.MsgspecError):
        _log.warning("stored tokens of an MCP server cannot be decrypted", extra={"server": server})
        return None
