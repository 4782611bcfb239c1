"""The Unix socket of a host as a file: one running host per path, mode 0600; a dead host's file is removed."""

import fcntl
import os
import socket
import stat
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError

_MAX_PATH_BYTES: Final = 107  # of a Unix socket's address on Linux


class SocketFile:
    """A listening Unix socket at a path. The lock file beside it is released when its process ends, even if killed."""

    def __init__(self, path: Path, owner: str = "an engine host", setting: str = "TOLLKEEPER_ENGINE_SOCKET") -> None:
        """Listen at the path. Raises ConfigurationError if it is in use or cannot be created.

        `owner` and `setting`, for the message, are the kind of owner and the setting of the path.
        """
        self.path = path
        self._owner = owner
        self._setting = setting
        if len(os.fsencode(path)) > _MAX_PATH_BYTES:
            raise ConfigurationError(
                f"socket path {path} is longer than the {_MAX_PATH_BYTES} bytes that Linux allows; "
                f"set {setting} to a shorter one"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"socket {path} cannot be made ({error.strerror}); set {setting} to a writable place"
            ) from error
        try:
            self._take_lock()
            self.socket = self._listen()
        except BaseException:
            os.close(self._lock)
            raise

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise self._in_use() from error

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._remove_stale()
            before = os.umask(0o177)
            try:
                listener.bind(str(self.path))
            finally:
                os.umask(before)
            listener.listen(128)
            listener.setblocking(False)
            self._inode = os.stat(self.path).st_ino
        except ConfigurationError:
            listener.close()
            raise
        except OSError as error:
            listener.close()
            raise ConfigurationError(
                f"socket {self.path} cannot be bound ({error.strerror}); remove what is there or set {self._setting}"
            ) from error
        return listener

    def _remove_stale(self) -> None:
        """Remove a stale socket. Anything else at the path is another program's file and makes `bind` fail."""
        if not (self.path.exists() and stat.S_ISSOCK(os.stat(self.path).st_mode)):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(self.path))
            except ConnectionRefusedError:
                self.path.unlink()
                return
        raise self._in_use()

    def _in_use(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self._owner} is already listening at {self.path}; stop it, or give this one another place "
            f"({self._setting})"
        )

    def close(self) -> None:
        """Stop listening and remove the file, unless another host has replaced it."""
        self.socket.close()
        try:
            if os.stat(self.path).st_ino == self._inode:
                self.path.unlink()
        except OSError:
            pass  # already removed
        os.close(self._lock)
