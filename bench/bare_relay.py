"""`python -m bench.bare_relay PORT UPSTREAM_PORT`: the least that a Python process between a client and a server does.

A request is parsed to know where it ends, and goes out on a connection that is kept; of its reply the head is parsed,
and a stream's pieces pass unread. There is no key, no JSON, no limit, no time limit, no record. What the gateway costs
beyond nginx is held against it: what it takes is the interpreter's, its event loop's and the kernel's.
"""

import asyncio
import gc
import sys
from typing import Final, cast

import httptools
import uvloop

_LAST_CHUNK: Final = b"0\r\n\r\n"
_BACKLOG: Final = 4096


class _Upstream(asyncio.Protocol):
    """A connection to the server: idle, or with the reply for one client."""

    def __init__(self, idle: list["_Upstream"]) -> None:
        self._idle = idle
        self.client: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._is_chunked = False
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._idle:
            self._idle.remove(self)
        if self.client is not None:
            self.client.close()

    def send(self, request: bytes, client: asyncio.Transport) -> None:
        """Send a request whose reply is for a client."""
        self.client, self._is_chunked, self._is_over = client, False, False
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        assert self.client is not None
        if self._is_chunked:
            self._is_over = data.endswith(_LAST_CHUNK)
        else:
            self._parser.feed_data(data)
        self.client.write(data)
        if self._is_over:
            if self._is_chunked:
                self._parser = httptools.HttpResponseParser(self)  # the last has not seen its reply's end
            self.client = None
            self._idle.append(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"transfer-encoding":
            self._is_chunked = True

    def on_message_complete(self) -> None:
        self._is_over = True


class _Client(asyncio.Protocol):
    """A client's connection."""

    def __init__(self, idle: list[_Upstream], upstream_port: int) -> None:
        self._idle = idle
        self._upstream_port = upstream_port
        self._parser = httptools.HttpRequestParser(self)
        self._pieces: list[bytes] = []
        self._dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        request = b"".join(self._pieces)
        self._pieces.clear()
        if self._idle:
            self._idle.pop().send(request, self._transport)
        else:
            self._dialling = asyncio.get_running_loop().create_task(self._dial(request))

    async def _dial(self, request: bytes) -> None:
        _, upstream = await asyncio.get_running_loop().create_connection(
            lambda: _Upstream(self._idle), "127.0.0.1", self._upstream_port
        )
        upstream.send(request, self._transport)


async def _relay(port: int, upstream_port: int) -> None:
    idle: list[_Upstream] = []
    server = await asyncio.get_running_loop().create_server(
        lambda: _Client(idle, upstream_port), "127.0.0.1", port, backlog=_BACKLOG
    )
    gc.collect()
    gc.freeze()
    gc.disable()  # it makes no cycles while connections stay
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_relay(int(sys.argv[1]), int(sys.argv[2])))
