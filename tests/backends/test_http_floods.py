"""Replies in big pieces and without end: each turn of the event loop takes some of it, and none is lost."""

import asyncio

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.http_client.http_connection import Connection, ReplyEndListener
from backends.http_client.http_origin import Origin
from backends.http_client.http_pool import HttpPool
from backends.http_client.http_timeouts import Timeouts
from contracts.errors import UpstreamBroken
from tests.backends.test_http_pool import HEAD, Receiver

PORTION = 32 * 1024
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


class Flood:
    """A server that answers with `first`, and then with `block` for ever, unless it is empty; it keeps connections."""

    def __init__(self, first: bytes, block: bytes = b"", *, closes: bool = False) -> None:
        self._first, self._block, self._closes = first, block, closes
        self.sent = self.accepted = 0

    async def __aenter__(self) -> HttpPool:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.pool = HttpPool(Origin.parse(f"http://127.0.0.1:{port}"), Timeouts())
        return self.pool

    async def __aexit__(self, *_: object) -> None:
        await self.pool.close()
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(self._first)
                while self._block:
                    writer.write(self._block)
                    self.sent += len(self._block)
                    await writer.drain()
                if self._closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


class Counting(Receiver):
    """Counts the bytes of each turn of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.of_turn = self.most = self.turns = 0

    def on_body(self, data: bytes) -> None:
        self.body += data
        self.of_turn += len(data)
        self.most = max(self.most, self.of_turn)

    async def watch(self) -> None:
        while True:
            self.of_turn = 0
            self.turns += 1
            await asyncio.sleep(0)


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.Loop, "asyncio": asyncio.SelectorEventLoop}


@pytest.mark.parametrize("framing", ["length", "chunked", "closed"])
async def test_a_large_reply_is_whole_and_others_have_their_turns(framing):
    body = bytes(range(256)) * 8000
    head = b"HTTP/1.1 200 OK\r\n"
    if framing == "length":
        reply = head + b"content-length: %d\r\n\r\n" % len(body) + body
    elif framing == "chunked":
        pieces = [body[at : at + 70_000] for at in range(0, len(body), 70_000)]
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in pieces)
        reply = head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    else:
        reply = head + b"\r\n" + body
    server = Flood(reply, closes=framing == "closed")
    async with server as pool:
        for _ in range(3):
            receiver = Counting()
            watching = asyncio.create_task(receiver.watch())
            await (await pool.send(HEAD, b"", receiver)).finished()
            watching.cancel()
            assert receiver.body == body
            assert receiver.most <= 3 * PORTION
    assert server.accepted == (3 if framing == "closed" else 1)


async def test_what_follows_a_large_reply_is_no_reply_to_the_next_request():
    body = b"x" * 100_000
    reply = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    server = Flood(reply + reply.replace(b"x", b"y"))
    async with server as pool:
        for count in (1, 2, 3):
            receiver = Receiver()
            await (await pool.send(HEAD, b"", receiver)).finished()
            assert receiver.body == body
            assert server.accepted == count


@pytest.mark.parametrize(
    ("first", "block"),
    [
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5", b";a=b" * 50_000),
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 50_000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000),
    ],
    ids=["chunk extension", "headers", "interim answers"],
)
async def test_a_flood_that_brings_nothing_is_cut_off(first, block):
    server = Flood(first, block)
    async with server as pool:
        exchange = await pool.send(HEAD, b"", Receiver())
        with pytest.raises(UpstreamBroken):
            await exchange.finished()
        assert server.sent < 40 << 20


async def test_what_only_keeps_a_reply_alive_is_bounded():
    class KeptAlive:
        def on_head(self, status: int, headers: dict[bytes, bytes]) -> None: ...
        def on_body(self, data: bytes) -> bool:
            return False

    server = Flood(STREAM, b": still here\n\n" * 20_000)
    async with server as pool:
        exchange = await pool.send(HEAD, b"", KeptAlive())
        with pytest.raises(UpstreamBroken, match="do not get its reply on"):
            await exchange.finished()


async def test_a_reader_that_pauses_takes_no_portion_meanwhile():
    receiver = Counting()
    server = Flood(b"HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\n" + b"x" * 2_000_000)
    async with server as pool:
        exchange = await pool.send(HEAD, b"", receiver)
        while not receiver.body:
            await asyncio.sleep(0)
        exchange.pause()
        seen = len(receiver.body)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(receiver.body) == seen
        exchange.resume()
        await exchange.finished()
        assert len(receiver.body) == 2_000_000


class Transport(asyncio.Transport):
    """What a connection needs of a transport, where a test is the server."""

    def write(self, data: object) -> None: ...
    def writelines(self, data: object) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def is_closing(self) -> bool:
        return False

    def abort(self) -> None: ...


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 3 * PORTION), max_size=8), pieces=st.lists(st.integers(1, 5 * PORTION)))
def test_however_a_reply_is_cut_it_is_the_same(sizes, pieces):
    body = b"".join(b"%c" % (65 + number) * size for number, size in enumerate(sizes))
    chunks = b"".join(b"%x\r\n%b\r\n" % (size, bytes([65 + number]) * size) for number, size in enumerate(sizes))
    reply = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"

    async def receive() -> bytes:
        ended: list[Exception | None] = []

        class Listening(ReplyEndListener):
            def reply_ended(self, error: Exception | None) -> None:
                ended.append(error)

        pool = HttpPool(Origin.parse("http://127.0.0.1:1"), Timeouts())
        connection, receiver = Connection(pool), Receiver()
        connection.connection_made(Transport())
        connection.send(HEAD, b"", receiver, Listening(), is_reused=False)
        at = 0
        for size in (*pieces, len(reply)):
            if at < len(reply):
                connection.data_received(reply[at : at + size])
            at += size
        for _ in range(1000):
            if ended:
                break
            await asyncio.sleep(0)
        assert ended == [None]
        await pool.close()
        return receiver.body

    assert asyncio.run(receive()) == body
