"""Key and headers of a target over HTTP, reloaded when a file changes.

Values never appear in messages or logs, which name the header and where its value is stored.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from typing import Final

from backends.llm.http.http_settings import REFERENCES
from backends.secrets.sealed_references import shown_reference
from contracts.errors import ConfigurationError
from contracts.serving.configuration import TargetSpec

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_MAX_VALUE: Final = 8 * 1024
_SENDABLE: Final = re.compile(r"[\x20-\x7e]*")


class HttpCredentials:
    """The header lines with the operator's credentials."""

    def __init__(self, spec: TargetSpec, headers: Mapping[str, str], resolve: Callable[[str], str]) -> None:
        """Read every value. Raises ConfigurationError if one cannot be read or sent."""
        self._spec = spec
        self._headers = headers
        self._resolve = resolve
        self.fault = ""  # why the files' current values are not in use
        self.secrets: tuple[str, ...] = ()  # values of references, current and previous
        self.values: tuple[str, ...] = ()  # values of `lines`, current and previous
        self.lines = self._take(self._read())
        self._has_files = any(ref.startswith("file:") for ref in (spec.key_ref, *headers.values()))
        self._watching: asyncio.Task[None] | None = None

    def watch(self, on_change: Callable[[], None]) -> None:
        """Check the files once a second from now on, if there are any, and call `on_change` when `lines`
        has changed.
        """
        if self._has_files:
            self._watching = asyncio.get_running_loop().create_task(self._watch(on_change))

    async def reread(self) -> bool:
        """Read every value again; return whether any has changed. If one is unusable, all previous values
        stay in use.
        """
        if not self._has_files:
            return False
        try:
            read = await asyncio.to_thread(self._read)
        except ConfigurationError as error:
            if error.message != self.fault:
                self.fault = error.message
                _log.error("credentials not reloaded, the previous ones stay in use", extra={"reason": error.message})
            return False
        self.fault = ""
        lines = "".join(read)
        changed = lines != self.lines
        if changed:
            self.lines = self._take(read)
        if changed:
            _log.info("credentials reloaded", extra={"target": self._spec.id})
        return changed

    async def close(self) -> None:
        """Stop checking files."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self, on_change: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if await self.reread():
                on_change()

    def _take(self, lines: list[str]) -> str:
        """Store the values of lines, and keep the previous ones, which calls in progress may have been sent with."""
        values = tuple(line.partition(": ")[2].rstrip("\r\n") for line in lines)
        self.values = (*values, *self.values[: len(lines)])
        return "".join(lines)

    def _read(self) -> list[str]:
        spec = self._spec
        key = self._resolve(spec.key_ref) if spec.key_ref else ""
        if not key.isascii() or any(character <= " " or character == "\x7f" for character in key):
            raise ConfigurationError(
                f"the key of target {spec.id!r} ({shown_reference(spec.key_ref)}) contains a space, a line end or "
                "non-ASCII characters"
            )
        lines = [f"authorization: Bearer {key}\r\n"] if key else []
        secrets = [key] if key else []
        for name, given in self._headers.items():
            is_reference = given.startswith(REFERENCES)
            value = self._resolve(given) if is_reference else given
            check_header_value(spec, name, value, shown_reference(given) if is_reference else "")
            lines.append(f"{name.lower()}: {value.strip()}\r\n")
            if is_reference:
                secrets.append(value.strip())
        self.secrets = (*secrets, *self.secrets[: len(secrets)])
        return lines


def check_header_value(spec: TargetSpec, name: str, value: str, reference: str = "") -> None:
    """Raise ConfigurationError, with the header's name but never its value, if the value cannot be sent."""
    if not _SENDABLE.fullmatch(value) or len(value) > _MAX_VALUE:
        place = f" ({reference})" if reference else ""
        raise ConfigurationError(
            f"target {spec.id!r}, headers: the value of {name}{place} contains a line end or another "
            f"character that no header carries, or has more than {_MAX_VALUE} characters"
        )
