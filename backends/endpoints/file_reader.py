"""Endpoints from a file that the operator rewrites."""

import threading
from pathlib import Path
from typing import Final

from backends.endpoints.source import Endpoint, parse_endpoint
from backends.endpoints.watch import SourceAway, Tell
from backends.processes.file_stamp import file_stamp
from contracts.errors import ConfigurationError

_LOOK_SECONDS: Final = 0.1
_MOST_BYTES: Final = 1 << 20


class FileReader:
    """Reads a file of endpoints again whenever it has changed. While it is missing or invalid, the last
    endpoints stay.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def follow(self, tell: Tell, stop: threading.Event) -> None:
        """Report the endpoints at each change of the file. Raises SourceAway."""
        read = None
        while not stop.is_set():
            stamp = file_stamp(self._path)
            if read is None or stamp != read:
                tell(self._endpoints())
                read = stamp
            stop.wait(_LOOK_SECONDS)

    def interrupt(self) -> None:
        """Do nothing: `follow` waits no longer than until its next check."""

    def _endpoints(self) -> frozenset[Endpoint]:
        try:
            with self._path.open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
            if len(content) > _MOST_BYTES:
                raise SourceAway(f"the file is larger than {_MOST_BYTES} bytes; name fewer endpoints")
            lines = content.decode().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SourceAway(f"the file cannot be read ({type(error).__name__})") from error
        found: set[Endpoint] = set()
        for number, line in enumerate(lines, 1):
            text = line.partition("#")[0].strip()
            if not text:
                continue
            try:
                found.add(parse_endpoint(text))
            except ConfigurationError as error:
                raise SourceAway(f"line {number} of the file: {error.message}") from error
        return frozenset(found)
