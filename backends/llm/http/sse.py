"""Splits server-sent events (WHATWG HTML, section 9.2) into whole events as bytes, with little copying."""

import re
from typing import Final

from contracts.errors import UpstreamBroken

MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
MAX_EVENTS: Final = 2048  # in one piece of at most 32 KiB: events with tokens are longer than 16 bytes

# An empty line after a line end; both are LF or CRLF.
_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
# The same in a stream whose lines all end with CR only, as the standard allows.
_BLANK_CR_LINE: Final = re.compile(rb"\r\r")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LONGEST_BLANK: Final = 3  # bytes of an event's end that may be in earlier pieces


class EventSplitter:
    """Splits a byte stream into events. Each keeps its own bytes, including the blank line at its end."""

    def __init__(self, most_bytes: int = MAX_EVENT_BYTES) -> None:
        """`most_bytes` is the maximum length of an event."""
        self._most_bytes = most_bytes
        self._rest = bytearray()
        self._searched = 0  # bytes of the rest that have been searched for an end
        self._blank = _BLANK_LINE
        self._has_begun = False

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the events that they complete.

        Raises UpstreamBroken for an event that is too long, and for more than 2048 events in one piece.
        """
        if not self._has_begun:
            data = self._begin(data)
        if not self._rest and _is_one_event(data) and self._blank is _BLANK_LINE:  # the usual case
            return [data]
        return self._split(data)

    def _split(self, data: bytes) -> list[bytes]:
        rest, rest_searched = self._rest, self._searched
        buffer: bytes | bytearray = data
        if rest:
            rest += data
            buffer = rest
        events: list[bytes] = []
        start = 0
        while (blank := self._blank.search(buffer, max(start, rest_searched))) is not None:
            events.append(bytes(buffer[start : blank.end()]))
            start = blank.end()
            if len(events) > MAX_EVENTS:
                raise UpstreamBroken(f"the target sent more than {MAX_EVENTS} events in one piece")
        if start < len(buffer):
            self._keep(buffer, start)
            if not events and self._ends_lines_with_cr(data):
                return self._split(b"")
        elif rest:
            self._rest = bytearray()
            self._searched = 0
        if len(self._rest) > self._most_bytes:
            raise UpstreamBroken(f"the target sent an event of more than {self._most_bytes} bytes")
        return events

    @property
    def is_between_events(self) -> bool:
        """Return whether there is no incomplete event."""
        return not self._rest

    @property
    def rest(self) -> bytes:
        """Return the bytes of an incomplete event; empty if there is none."""
        return bytes(self._rest.strip())

    def _begin(self, data: bytes) -> bytes:
        """Process the stream's first bytes, and remove a byte order mark."""
        if data.startswith(b"data:") and not self._rest:  # as most do
            self._has_begun = True
            return data
        data = bytes(self._rest) + data
        self._rest = bytearray()
        self._has_begun = len(data) >= len(_BYTE_ORDER_MARK) or not _BYTE_ORDER_MARK.startswith(data)
        if not self._has_begun:
            self._rest += data
            return b""
        return data.removeprefix(_BYTE_ORDER_MARK)

    def _keep(self, buffer: bytes | bytearray, start: int) -> None:
        """Buffer an incomplete event, and record how far it has been searched."""
        if start or buffer is not self._rest:
            self._rest = bytearray(buffer[start:])
        self._searched = max(0, len(self._rest) - _LONGEST_BLANK)

    def _ends_lines_with_cr(self, data: bytes) -> bool:
        """Detect, once, that the stream's lines end with CR only."""
        if self._blank is _BLANK_CR_LINE or b"\r" not in data or b"\n" in self._rest or b"\r\r" not in self._rest:
            return False
        self._blank = _BLANK_CR_LINE
        self._searched = 0
        return True


def _is_one_event(data: bytes) -> bool:
    """Return whether this is one whole event of one line, a faster check than a search for ends."""
    return data.endswith(b"\n\n") and data.find(b"\n") == len(data) - 2


def data_of(event: bytes) -> bytes:
    """Return an event's data: its `data:` lines joined by line feeds; empty for comments and keep-alives."""
    if event.startswith(b"data:") and event.find(b"\n") >= len(event) - 3:  # the usual case: one line
        return event[5:].strip()
    lines = (line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:"))
    return b"\n".join(lines).strip()
