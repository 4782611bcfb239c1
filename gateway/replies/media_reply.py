"""The answer to one request for other media: an upstream's body as it came, of whichever type it is."""

from typing import Final

from gateway.replies.reply import JSON, Reply, ReplyFacts
from gateway.wire.exchange import header_lines
from gateway.wire.served import lines_of

_MAX_TYPE: Final = 100


class MediaReply(Reply):
    """The sink of one answer."""

    def __init__(self, facts: ReplyFacts) -> None:
        super().__init__(facts)
        self._media_type = JSON

    def media_type(self, name: str) -> None:
        """Keep the type of the answer that follows; what is none is sent as bytes."""
        is_sound = 0 < len(name) <= _MAX_TYPE and name.isascii() and name.isprintable()
        self._media_type = name.encode() if is_sound else b"application/octet-stream"

    def conclude(self) -> None:
        """Send the answer."""
        body = self._body or b""
        lines = header_lines(self._headers) + lines_of(self._served) + self._lines
        self._exchange.send_lines(200, self._media_type, body, lines)
