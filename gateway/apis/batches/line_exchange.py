"""One line of a batch as an exchange: a request that nobody sent, and an answer that is kept rather than written."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.wire.exchange import Exchange, Headers, Line, RequestHead


@dataclass(frozen=True, slots=True)
class LineAnswer:
    """A whole answer."""

    status: int
    body: bytes
    headers: Headers

    @property
    def request_id(self) -> str:
        """Return the id that the answer's record has."""
        return next((value.decode("latin-1") for name, value in self.headers if name == b"x-request-id"), "")


class _NoLine(Line):
    """A connection without a far side: never slow, never gone."""

    def write(self, data: bytes) -> None:
        """Drop what is written: the answer is taken before it becomes bytes on a wire."""

    def writer(self) -> Callable[[bytes], object]:
        """Return what drops it for less."""
        return self.write

    def finished(self, *, keep_alive: bool) -> None:
        """Nothing waits for the connection."""

    def hold(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Nobody is slow to read."""

    async def drained(self) -> None:
        """Nobody is slow to read."""


_NO_LINE: Final = _NoLine()


class LineExchange(Exchange):
    """The exchange of one line. `answer` is there once it has been served."""

    __slots__ = ("answer",)

    def __init__(self, path: str, body: bytes, headers: dict[bytes, bytes]) -> None:
        lines = {b"content-type": b"application/json", **headers}
        head = RequestHead(method="POST", path=path, query="", version="1.1", headers=lines, keep_alive=False)
        super().__init__(_NO_LINE, head, body, "")
        self.answer: LineAnswer | None = None

    def send(self, status: int, content_type: bytes, body: bytes, headers: Headers = ()) -> None:
        """Keep a whole answer."""
        self.is_started = True
        self.bytes_sent += len(body)
        self.answer = LineAnswer(status, body, headers)
        self.finish()
