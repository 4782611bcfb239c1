"""A stream's request that is under way before anyone takes its reply, and what has come of the reply meanwhile."""

from collections.abc import Callable
from functools import partial

from backends.http_client.chunk_taker import ChunkTaker
from backends.http_client.http_pool import Exchange
from backends.llm.base import Sink, Target
from backends.llm.http.http_reply import ReplyReader
from backends.llm.http.known_shapes import KnownShapes
from contracts.api.requests import AnyRequest
from contracts.errors import UpstreamError


class HeldReply:
    """Keeps what comes of a reply until there is somebody to read it, which is mostly before anything has come."""

    def __init__(self) -> None:
        self._reader: ReplyReader | None = None
        self._held: list[Callable[[], object]] = []

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Take the head."""
        if self._reader is None:
            self._held.append(partial(self.on_head, status, headers))
        else:
            self._reader.on_head(status, headers)

    def on_body(self, data: bytes) -> bool:
        """Take a piece of the body."""
        if self._reader is None:
            self._held.append(partial(self.on_body, data))
            return True
        return self._reader.on_body(data)

    def chunk_taker(self) -> ChunkTaker | None:
        """Give what the reader takes chunks with."""
        return None if self._reader is None else self._reader.chunk_taker()

    def give_to(self, reader: ReplyReader) -> None:
        """Let a reader have what has come and what comes. Raises UpstreamError, as the reader does."""
        self._reader = reader
        held, self._held = self._held, []
        for piece in held:
            piece()


class SentStream:
    """A request that was sent to a target. Either it is taken, or it is abandoned."""

    __slots__ = ("_exchange", "_held", "_known_shapes", "_request", "_sent_credentials", "target")

    def __init__(
        self,
        target: Target,
        exchange: Exchange,
        held: HeldReply,
        request: AnyRequest,
        known_shapes: KnownShapes,  # of the target's streams
        sent_credentials: tuple[str, ...] = (),
    ) -> None:
        self.target = target
        self._known_shapes = known_shapes
        self._sent_credentials = sent_credentials
        self._exchange = exchange
        self._held: HeldReply | None = held
        self._request = request

    def take(self, sink: Sink) -> tuple[Exchange, ReplyReader]:
        """Let a sink have the reply. Raises UpstreamError where what has come of it is none."""
        assert self._held is not None
        held, self._held = self._held, None
        reader = ReplyReader(
            self.target.spec, sink, self._request, self._known_shapes, sent_credentials=self._sent_credentials
        )
        try:
            held.give_to(reader)
        except UpstreamError as error:
            self._exchange.abandon()
            raise reader.failure(error) from error
        except BaseException:
            self._exchange.abandon()
            raise
        return self._exchange, reader

    def abandon(self) -> None:
        """Close the connection where nobody has taken the reply."""
        if self._held is not None:
            self._held = None
            self._exchange.abandon()
