"""Secrets as files of mode 0600 in one directory of mode 0700, created at first use."""

import os
import secrets
from pathlib import Path

from backends.secrets.private_files import write_private
from contracts.errors import ConfigurationError

_BYTES = 32


class SecretFiles:
    """The secrets of one installation, in `<data>/secrets`. Values are URL-safe text without line ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def get(self, name: str) -> str | None:
        """Return a secret; `None` if it does not exist. Raises ConfigurationError if it cannot be read."""
        path = self.directory / name
        try:
            return path.read_text().strip() or None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ConfigurationError(f"secret file {path} cannot be read ({error.strerror}); fix its owner") from error

    def replace(self, name: str, text: str) -> None:
        """Replace a secret atomically. Raises ConfigurationError if it cannot be written."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(self.directory / name, f"{text}\n".encode())
        except OSError as error:
            raise ConfigurationError(
                f"secret {name!r} cannot be written to {self.directory} ({error.strerror})"
            ) from error

    def get_or_create(self, name: str, prefix: str = "") -> str:
        """Return a secret; create it with 256 random bits if it does not exist.

        If two processes start at once, the first to link the file wins, and both read the same value.
        """
        existing = self.get(name)
        if existing is not None:
            return existing
        path = self.directory / name
        draft = self.directory / f".{name}.{os.getpid()}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(prefix + secrets.token_urlsafe(_BYTES) + "\n")
            try:
                os.link(draft, path)
            except FileExistsError:
                pass  # the other process was first
            finally:
                os.unlink(draft)
        except OSError as error:
            raise ConfigurationError(
                f"secret {name!r} cannot be written to {self.directory} ({error.strerror}); "
                "choose a writable data directory with --data or TOLLKEEPER_DATA"
            ) from error
        created = self.get(name)
        assert created is not None  # linked just above
        return created
