"""One connection to an engine host: splits bytes into frames, and passes frames of requests to their streams."""

import asyncio
from typing import Protocol, cast

from backends.llm.host.engine_stream import EngineStream
from backends.processes.running_time import any_done
from contracts.engine.frame_splitter import FrameSplitter
from contracts.engine.wire import Delta, FromGateway, FromHost, frame, from_host
from contracts.errors import InvalidRecord


class LineOwner(Protocol):
    """Receiver of a connection's frames."""

    def stream_of(self, request_id: bytes) -> EngineStream | None: ...
    def on_message(self, line: "EngineLine", message: FromHost) -> None: ...


class EngineLine(asyncio.Protocol):
    """Protocol of one connection. `lost` is done once it has ended; `lost_because` is the reason."""

    def __init__(self, owner: LineOwner) -> None:
        self._owner = owner
        self._splitter = FrameSplitter()
        self._transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = loop.create_future()
        self._greeted: asyncio.Future[None] = loop.create_future()
        self.lost_because = ""
        self.received = 0  # how often data arrived, which shows that the host's event loop runs

    @property
    def is_lost(self) -> bool:
        """Return whether the connection has ended."""
        return self.lost.done()

    async def greeted(self, within_seconds: float) -> bool:
        """Wait until the owner has called `greet` or the connection has ended; return whether either
        happened in time.
        """
        return await any_done((self._greeted, self.lost), within_seconds)

    def greet(self) -> None:
        """Record that the host's hello has arrived."""
        if not self._greeted.done():
            self._greeted.set_result(None)

    def send(self, message: FromGateway) -> None:
        """Send a frame. Does nothing if the connection has ended."""
        if self._transport is not None and not self.is_lost:
            self._transport.write(frame(message))

    def close(self, because: str = "") -> None:
        """End the connection now."""
        self.lost_because = self.lost_because or because
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, not the base class

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f"the connection broke: {exc}" if exc is not None else "it closed the connection"
        self.lost_because = self.lost_because or reason
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.received += 1
        stream_of = self._owner.stream_of
        try:
            for body in self._splitter.feed(data):
                message = from_host(body)
                if type(message) is not Delta:
                    self._owner.on_message(self, message)
                    continue
                stream = stream_of(message.request_id)
                if stream is not None:
                    _deliver(stream, message)
        except InvalidRecord as error:
            self.close(error.message)


def _deliver(stream: EngineStream, message: Delta) -> None:
    try:
        stream.on_delta(message)
    except Exception as error:  # an error in one answer must not end others on the connection
        stream.fail(error)
