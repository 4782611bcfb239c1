"""Encrypts secrets that must be readable again, such as a channel's address, before they are stored in the database."""

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError

if TYPE_CHECKING:  # imported in functions: it takes 8 MB, which a gateway without encrypted secrets saves
    from cryptography.fernet import MultiFernet

KEY_FILE: Final = "channel_key"
KEYS_VARIABLE: Final = "TOLLKEEPER_SEALING_KEYS"
_KEY_ID_DIGITS: Final = 16
_PLAIN: Final = ("http://", "https://")


class Sealer:
    """Encrypts with Fernet (AES-128 in CBC mode, HMAC-SHA-256) and the installation's keys: the newest encrypts, all
    decrypt.

    A text encrypted with a newer key than this process has makes it read its keys again, so that a rotation needs no
    restart.
    """

    def __init__(self, key: str | Sequence[str], reread: Callable[[], Sequence[str]] | None = None) -> None:
        """`key`: 256 bits as URL-safe Base64 without padding, as in secret files; several keys newest first.

        `reread` returns the current keys. Raises ConfigurationError.
        """
        self._keys = [key] if isinstance(key, str) else list(key)
        self._fernet = _fernet(self._keys)
        self._reread = reread

    @classmethod
    def of(cls, secrets: SecretFiles) -> "Sealer":
        """Return a sealer with the keys of the environment, else the installation's, which are created if they are
        missing.

        Raises ConfigurationError.
        """
        given = environment_keys()
        if given:
            return cls(given)

        def read() -> list[str]:
            return secrets.get_or_create(KEY_FILE).split()

        return cls(read(), read)

    @classmethod
    def existing(cls, secrets: SecretFiles) -> "Sealer | None":
        """Return a sealer if keys exist, else `None`: new keys could not decrypt anything."""
        return cls.of(secrets) if environment_keys() or secrets.get(KEY_FILE) else None

    def seal(self, text: str) -> str:
        """Encrypt a text. The result is ASCII, 4/3 of the text's size plus about 100 characters."""
        return self._fernet.encrypt(text.encode()).decode()

    def open(self, sealed: str) -> str:
        """Decrypt a text. Raises ConfigurationError if it was encrypted with another key, or is damaged."""
        from cryptography.fernet import InvalidToken

        try:
            return self._fernet.decrypt(sealed.encode()).decode()
        except InvalidToken:
            if self.refresh():
                return self.open(sealed)
            # From None: the library's traceback would say nothing more.
            raise ConfigurationError(
                f"it was sealed with another key than secret {KEY_FILE!r}; put back the file that it was made with, "
                "or make the channel again"
            ) from None

    def seal_address(self, address: str) -> str:
        """Encrypt an address; an empty one stays empty."""
        return self.seal(address) if address else ""

    def open_address(self, sealed: str) -> str:
        """Decrypt an address; an empty one, or one stored without encryption by an earlier version, is returned
        unchanged.
        """
        return sealed if not sealed or sealed.startswith(_PLAIN) else self.open(sealed)

    def reseal(self, sealed: str) -> str:
        """Return a text encrypted again with the newest key. Raises ConfigurationError as `open` does."""
        return self.seal(self.open(sealed))

    def is_current(self, sealed: str) -> bool:
        """Return whether a text was encrypted with the newest key."""
        from cryptography.fernet import InvalidToken

        try:
            _fernet(self._keys[:1]).decrypt(sealed.encode())
        except InvalidToken:
            return False
        return True

    @property
    def key_id(self) -> str:
        """Return the id of the newest key, which does not reveal the key."""
        return key_id_of(self._keys[0])

    def refresh(self) -> bool:
        """Read the keys again; return whether they have changed. Raises ConfigurationError."""
        found = list(self._reread()) if self._reread is not None else self._keys
        if found == self._keys:
            return False
        self._keys, self._fernet = found, _fernet(found)
        return True


def key_id_of(key: str) -> str:
    """Return 16 hexadecimal digits of a key's SHA-256: for 256 random bits they reveal nothing."""
    return hashlib.sha256(key.encode()).hexdigest()[:_KEY_ID_DIGITS]


def environment_keys() -> list[str]:
    """Return the keys in the environment, newest first; empty if there are none."""
    return [key for key in os.environ.get(KEYS_VARIABLE, "").replace(",", " ").split() if key]


def _fernet(keys: Sequence[str]) -> "MultiFernet":
    from cryptography.fernet import Fernet, MultiFernet

    try:
        return MultiFernet([Fernet(key.encode() + b"=") for key in keys])
    except ValueError as error:
        raise ConfigurationError(
            f"secret {KEY_FILE!r} is not 256 bits in URL-safe Base64; put back the file it was, or remove it and "
            "make the alert channels again"
        ) from error
