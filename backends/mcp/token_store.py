"""Where gateways keep the tokens of refresh grants: sealed, and changed by one gateway at a time."""

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
    """Calls block; they come from threads. All raise ControlUnavailable or ConfigurationError."""

    def claim(self, server: str) -> object | None:
        """Return the right to renew a server's tokens for half a minute; `None` if another process has it."""
        ...

    def read(self, server: str) -> AccessGrant | None:
        """Return what was kept last; `None` if there is nothing that can be read."""
        ...

    def keep(self, server: str, grant: AccessGrant) -> None:
        """Keep tokens in place of those before: on disk when it returns."""
        ...

    def give_back(self, claim: Any) -> None:
        """End a claim."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


class FileTokenStore:
    """Tokens among the secret files of a gateway without a control database, for all its workers."""

    def __init__(self, secrets: SecretFiles) -> None:
        self._secrets = secrets

    def claim(self, server: str) -> int | None:
        """Return the descriptor of a locked file; the lock ends with the process."""
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
        """Return what the file holds."""
        sealed = self._secrets.get(f"{_NAME}{server}")
        return None if sealed is None else opened_grant(sealed, self._sealer(), server)

    def keep(self, server: str, grant: AccessGrant) -> None:
        """Replace the file."""
        self._secrets.replace(f"{_NAME}{server}", self._sealer().seal(encode_grant(grant).decode()))

    def give_back(self, claim: Any) -> None:
        """Unlock the file."""
        os.close(claim)

    def close(self) -> None:
        """Do nothing: no file is open between two calls."""

    def _sealer(self) -> Any:
        from backends.control.sealer import Sealer  # here: most gateways have no such tokens, and need no cryptography

        return Sealer.of(self._secrets)


def opened_grant(sealed: str, sealer: Any, server: str) -> AccessGrant | None:
    """Return sealed tokens; `None` if they cannot be opened, so that the configured refresh token is used again."""
    try:
        return decode_grant(sealer.open(sealed).encode())
    except (ConfigurationError, msgspec.MsgspecError):
        _log.warning("stored tokens of an MCP server cannot be decrypted", extra={"server": server})
        return None
