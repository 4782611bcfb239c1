"""Seals short secrets that have to be read again, such as a channel's address, before they go into the database."""

from typing import Final

from cryptography.fernet import Fernet, InvalidToken

from backends.secret_files import SecretFiles
from contracts.errors import ConfigurationError

KEY_FILE: Final = "channel_key"


class Sealer:
    """Fernet (AES-128 in CBC mode, HMAC-SHA-256) under a key of the installation's."""

    def __init__(self, key: str) -> None:
        """Take 256 bits as URL-safe Base64 without padding, as secret files hold them. Raises ConfigurationError."""
        try:
            self._fernet = Fernet(key.encode() + b"=")
        except ValueError as error:
            raise ConfigurationError(
                f"secret {KEY_FILE!r} is not 256 bits in URL-safe Base64; put back the file it was, or remove it and "
                "make the alert channels anew"
            ) from error

    @classmethod
    def of(cls, secrets: SecretFiles) -> "Sealer":
        """Take the installation's key, made where there is none. Raises ConfigurationError."""
        return cls(secrets.get_or_create(KEY_FILE))

    def seal(self, text: str) -> str:
        """Give what may be kept: ASCII, some 100 characters and a third more than the text."""
        return self._fernet.encrypt(text.encode()).decode()

    def open(self, sealed: str) -> str:
        """Give what was sealed. Raises ConfigurationError where it was sealed with another key, or is damaged."""
        try:
            return self._fernet.decrypt(sealed.encode()).decode()
        except InvalidToken:
            # From None: the chain would carry nothing but the library's frames.
            raise ConfigurationError(
                f"it was sealed with another key than secret {KEY_FILE!r}; put back the file that it was made with, "
                "or make the channel anew"
            ) from None
