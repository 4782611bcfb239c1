"""Server-sent events, split into whole events (WHATWG HTML, section 9.2) as bytes, without copying more than needed."""

import re
from typing import Final

from contracts.errors import UpstreamBroken

MAX_EVENT_BYTES: Final = 4 * 1024 * 1024

# An empty line after a line's end, each of them LF or CRLF. A lone CR, which no server sends, ends no line here.
_BLANK_LINE: Final = re.compile(rb"\n\r?\n")


class EventSplitter:
    """Cuts a byte stream into events. Each event keeps its own bytes, including the blank line that ends it."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and give the events they complete. Raises UpstreamBroken on an event over 4 MiB."""
        buffer = self._rest + data if self._rest else data
        events: list[bytes] = []
        start = 0
        while (blank := _BLANK_LINE.search(buffer, start)) is not None:
            events.append(buffer[start : blank.end()])
            start = blank.end()
        self._rest = buffer[start:] if start else buffer
        if len(self._rest) > MAX_EVENT_BYTES:
            raise UpstreamBroken(f"the target sent an event of more than {MAX_EVENT_BYTES} bytes")
        return events

    @property
    def rest(self) -> bytes:
        """Give the bytes of an unfinished event, empty where there are none."""
        return self._rest.strip()


def data_of(event: bytes) -> bytes:
    """Give an event's data: its `data:` lines joined by line ends; empty for comments and keep-alives."""
    if event.startswith(b"data:") and event.find(b"\n") >= len(event) - 3:  # the usual case: one line
        return event[5:].strip()
    lines = (line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:"))
    return b"\n".join(lines).strip()
