"""A separate virtual environment for a process whose packages conflict with the base environment's.

It is installed only if the operator requests it, by a command or an option of `tollkeeper up`.
"""

import asyncio
import hashlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import ConfigurationError
from tollkeeper.packaged_files import ROOT, environments_folder, packaged_file

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Contents:
    """A package to install: name, folder beside the code, list in `constraints/`, duration, and install command."""

    name: str
    folder: str
    versions: str
    takes: str
    command: str


class OwnEnvironment:
    """A virtual environment beside the code, or a Python that the operator names. `installs`: whether pip may run."""

    def __init__(self, contents: Contents, root: Path = ROOT, python: str = "", *, installs: bool = False) -> None:
        self._contents = contents
        self._folder = environments_folder(root) / contents.folder
        self._versions = packaged_file(f"constraints/{contents.versions}", root)
        self._stamp = self._folder / ".installed"
        self._is_others = bool(python)
        self._installs = installs
        self.python = Path(python) if python else self._folder / "bin" / "python"

    @property
    def is_ready(self) -> bool:
        """Return whether everything is installed already."""
        try:
            return self._is_others or self._stamp.read_text() == self._wanted()
        except OSError:
            return False

    async def set_up(self, say: Say) -> None:
        """Install missing packages if `installs`, reporting progress with `say`.

        Raises ConfigurationError if that fails, or if packages are missing and `installs` is false.
        """
        if self.is_ready:
            return
        if not self._installs:
            self._require_installed(say)
            return
        try:
            await self._install(say)
        except OSError as error:
            raise ConfigurationError(
                f"{self._contents.name}'s environment cannot be set up in {self._folder}: {error}"
            ) from error

    def _require_installed(self, say: Say) -> None:
        """Raise ConfigurationError if the package is missing; if it has other versions than listed, only warn."""
        name, how = self._contents.name, f"run `{self._contents.command}`, or start with --install"
        if not self._stamp.is_file():
            raise ConfigurationError(f"{name} is not installed in {self._folder}; {how}")
        say(f"{name} in {self._folder} has other versions than constraints/{self._contents.versions}; {how}")

    async def _install(self, say: Say) -> None:
        began = time.monotonic()
        name = self._contents.name
        say(f"installing {name} into {self._folder}, {self._contents.takes}, once")
        self._stamp.unlink(missing_ok=True)
        await run_installer(sys.executable, "-m", "venv", str(self._folder), name=name)
        await run_installer(
            *(str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "-r", str(self._versions)),  # the list is complete: no dependency resolution is needed
            name=name,
        )
        self._stamp.write_text(self._wanted())
        say(f"{name} is installed, after {time.monotonic() - began:.0f} s")

    def _wanted(self) -> str:
        return hashlib.sha256(self._versions.read_bytes()).hexdigest()


async def run_installer(*command: str, name: str = "the") -> None:
    """Run an install command. Raises ConfigurationError with its last line of output if it fails."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        last = output.decode(errors="replace").strip().rpartition("\n")[2] or "it printed nothing"
        whose = "the" if name == "the" else f"{name}'s"
        raise ConfigurationError(f"{whose} environment cannot be set up: {last}")


def main(environment: OwnEnvironment) -> int:
    """Set up an environment from a terminal; return the exit status."""
    try:
        asyncio.run(environment.set_up(lambda line: print(line, flush=True)))
    except ConfigurationError as error:
        print(error.message, file=sys.stderr)
        return 2
    return 0
