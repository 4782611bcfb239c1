"""Server-sent events, split into whole events (WHATWG HTML, section 9.2) as bytes, without copying more than needed."""

from typing import Final

from contracts.errors import UpstreamBroken

MAX_EVENT_BYTES: Final = 4 * 1024 * 1024


class EventSplitter:
    """Cuts a byte stream into events. Each event keeps its own bytes, including the blank line that ends it."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and give the events they complete. Raises UpstreamBroken on an event over 4 MiB."""
        buffer = self._rest + data if self._rest else data
        events: list[bytes] = []
        start = 0
        while (end := _end_of_event(buffer, start)) >= 0:
            events.append(buffer[start:end])
            start = end
        self._rest = buffer[start:] if start else buffer
        if len(self._rest) > MAX_EVENT_BYTES:
            raise UpstreamBroken(f"the target sent an event of more than {MAX_EVENT_BYTES} bytes")
        return events

    @property
    def has_rest(self) -> bool:
        """Say whether bytes of an unfinished event are held."""
        return bool(self._rest.strip())


def _end_of_event(buffer: bytes, start: int) -> int:
    unix = buffer.find(b"\n\n", start)
    if unix < 0 and buffer.find(b"\r", start) < 0:
        return -1
    dos = buffer.find(b"\r\n\r\n", start)
    if dos >= 0 and (unix < 0 or dos < unix):
        return dos + 4
    return unix + 2 if unix >= 0 else -1


def data_of(event: bytes) -> bytes:
    """Give an event's data: its `data:` lines joined by line ends; empty for comments and keep-alives."""
    if event.startswith(b"data:") and event.find(b"\n") >= len(event) - 4:  # the usual case: one line
        return event[5:].strip()
    lines = (line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:"))
    return b"\n".join(lines).strip()
