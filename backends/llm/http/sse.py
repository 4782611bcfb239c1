"""Server-sent events, split into whole events (WHATWG HTML, section 9.2) as bytes, without copying more than needed."""

import re
from typing import Final

from contracts.errors import UpstreamBroken

MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
MAX_EVENTS: Final = 2048  # in one piece, which has 32 KiB at most: events of tokens are longer than that

# An empty line after a line's end, each of them LF or CRLF.
_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
# The same in a stream whose lines all end with a lone CR, as the standard allows. Nobody mixes it with the others.
_BLANK_CR_LINE: Final = re.compile(rb"\r\r")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LONGEST_BLANK: Final = 3  # bytes: how far an end that has begun may reach back


class EventSplitter:
    """Cuts a byte stream into events. Each event keeps its own bytes, including the blank line that ends it."""

    def __init__(self, most_bytes: int = MAX_EVENT_BYTES) -> None:
        """`most_bytes` is how long an event may be."""
        self._most_bytes = most_bytes
        self._rest = bytearray()
        self._searched = 0  # bytes of the rest in which no event ends
        self._blank = _BLANK_LINE
        self._has_begun = False

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the events they complete.

        Raises UpstreamBroken on an event that is too long, and on thousands that are too short to carry anything.
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
        """Return whether nothing is held back."""
        return not self._rest

    @property
    def rest(self) -> bytes:
        """Return the bytes of an unfinished event, empty if there are none."""
        return bytes(self._rest.strip())

    def _begin(self, data: bytes) -> bytes:
        """Accept the stream's first bytes, without the mark that may stand before them."""
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
        """Hold back what no blank line has ended yet, and not look through it again: pieces may be tiny."""
        if start or buffer is not self._rest:
            self._rest = bytearray(buffer[start:])
        self._searched = max(0, len(self._rest) - _LONGEST_BLANK)

    def _ends_lines_with_cr(self, data: bytes) -> bool:
        """Find out, once, that the stream is one whose lines end with CR alone."""
        if self._blank is _BLANK_CR_LINE or b"\r" not in data or b"\n" in self._rest or b"\r\r" not in self._rest:
            return False
        self._blank = _BLANK_CR_LINE
        self._searched = 0
        return True


def _is_one_event(data: bytes) -> bool:
    """Return whether this is one event of one line, whole: for less than a search for all that may end one."""
    return data.endswith(b"\n\n") and data.find(b"\n") == len(data) - 2


def data_of(event: bytes) -> bytes:
    """Return an event's data: its `data:` lines joined by line ends; empty for comments and keep-alives."""
    if event.startswith(b"data:") and event.find(b"\n") >= len(event) - 3:  # the usual case: one line
        return event[5:].strip()
    lines = (line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:"))
    return b"\n".join(lines).strip()
