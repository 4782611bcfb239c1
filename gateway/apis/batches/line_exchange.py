"""One line of a batch as an exchange: a request without a client, and an answer that is stored instead of sent."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.wire.exchange import Exchange, Headers, Line, RequestHead, header_lines

_REQUEST_ID: Final = re.compile(rb"^x-request-id: ([^\r]*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LineAnswer:
    """The complete HTTP answer to one line of a batch."""

    status: int
    body: bytes
    lines: bytes  # of its headers

    @property
    def request_id(self) -> str:
        """Return the request id of the answer's record; empty if the answer has none."""
        found = _REQUEST_ID.search(self.lines)
        return "" if found is None else found[1].decode("latin-1")


class _NoLine(Line):
    """A connection without a client: never slow, never closed."""

    def write(self, data: bytes) -> None:
        """Discard data: the answer is stored before it is serialised."""

    def writer(self) -> Callable[[bytes], object]:
        """Return a function that discards data."""
        return self.write

    def finished(self, *, keep_alive: bool) -> None:
        """Nothing waits for the connection."""

    def hold(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Do nothing: there is no slow client."""

    async def drained(self) -> None:
        """Return at once: there is no slow client."""


_NO_LINE: Final = _NoLine()


class LineExchange(Exchange):
    """The exchange of one line. `answer` is set when the line has been served."""

    __slots__ = ("answer",)

    def __init__(self, path: str, body: bytes, headers: dict[bytes, bytes]) -> None:
        lines = {b"content-type": b"application/json", **headers}
        head = RequestHead(method="POST", path=path, query="", version="1.1", headers=lines, keep_alive=False)
        super().__init__(_NO_LINE, head, body, "")
        self.answer: LineAnswer | None = None

    def send(self, status: int, content_type: bytes, body: bytes, headers: Headers = ()) -> None:
        """Store a complete answer, with an id only if it has a record."""
        self.send_lines(status, content_type, body, header_lines(headers))

    def send_lines(self, status: int, content_type: bytes, body: bytes, lines: bytes) -> None:
        """Store a complete answer."""
        self.is_started = True
        self.bytes_sent += len(body)
        self.answer = LineAnswer(status, body, lines)
        self.finish()
