"""An installation's data directory: the supervisor's lock, and the addresses of its processes."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from backends.secrets.private_files import keep_private
from contracts.errors import ConfigurationError

_LEFTOVER_SECONDS = 5.0


class Installation:
    """The data directory of an installation."""

    def __init__(self, data: Path) -> None:
        self.data = data.absolute()
        self.run = self.data / "run"
        self.secrets = self.data / "secrets"
        self._addresses = self.run / "addresses.json"

    def prepare(self) -> None:
        """Create the directories. Raises ConfigurationError if they cannot be created or written."""
        try:
            # Only for its owner: the control database names all payers.
            keep_private(self.data)
            self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.run.mkdir(exist_ok=True)
            probe = self.run / f".probe.{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise ConfigurationError(
                f"data directory {self.data} is not writable ({error.strerror}); "
                "choose another with --data or TOLLKEEPER_DATA"
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the supervisor's lock in a `with` block. Raises ConfigurationError if another process holds it.

        The kernel releases the lock when the process ends in any way.
        """
        path = self.run / "up.lock"
        with path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise ConfigurationError(
                    f"`tollkeeper up` runs already on {self.data} (pid {holder}); stop it or choose another --data"
                ) from error
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    def is_supervised(self) -> bool:
        """Return whether a supervisor runs: its addresses are saved, and its lock is held."""
        try:
            return self._addresses.exists() and psutil.pid_exists(int((self.run / "up.lock").read_text()))
        except (OSError, ValueError):
            return False

    def write_addresses(self, addresses: Mapping[str, str]) -> None:
        """Save the processes' URLs for other commands."""
        draft = self._addresses.with_suffix(".draft")
        draft.write_text(json.dumps(dict(addresses), indent=2) + "\n")
        draft.replace(self._addresses)

    def forget_addresses(self) -> None:
        """Delete the saved URLs."""
        self._addresses.unlink(missing_ok=True)

    def address_of(self, process: str) -> str | None:
        """Return the saved URL of a process; `None` if there is none."""
        try:
            addresses = json.loads(self._addresses.read_text())
        except (OSError, ValueError):
            return None
        address = addresses.get(process) if isinstance(addresses, dict) else None
        return address if isinstance(address, str) else None

    def end_leftovers(self, commands: Mapping[str, Sequence[str]]) -> list[str]:
        """Stop processes that a killed supervisor left, because they hold ports and files; return their names.

        Only processes that a pid file names and that run the expected command are stopped.
        """
        ended = []
        for name, command in commands.items():
            path = self.run / f"{name}.pid"
            try:
                process = psutil.Process(int(path.read_text()))
                if process.cmdline()[-len(command) :] == list(command):
                    process.kill()
                    process.wait(_LEFTOVER_SECONDS)
                    ended.append(name)
            except (OSError, ValueError, psutil.Error):
                pass  # no file, no such process, or not ours
            path.unlink(missing_ok=True)
        return ended
