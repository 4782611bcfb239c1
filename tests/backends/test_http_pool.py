"""The upstream connection pool: reuse, limits, timeouts, and what it does with replies that are not HTTP."""

import asyncio
from contextlib import closing

import pytest
import uvloop

from backends.http_client.http_connection import Connection
from backends.http_client.http_origin import Origin
from backends.http_client.http_pool import HttpPool
from backends.http_client.http_timeouts import Timeouts
from contracts.errors import ConfigurationError, UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from tests.gateway.model_server import eventually, new_upstream, upstream

__all__ = ["eventually", "new_upstream", "upstream"]  # fixtures

HEAD = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


class LaterLoop(asyncio.SelectorEventLoop):
    """A loop with a time of its own."""

    def time(self) -> float:
        return super().time() + 1000.0


class Receiver:
    """Keeps a reply."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status, self.headers = status, headers

    def on_body(self, data: bytes) -> None:
        self.body += data


@pytest.fixture
async def new_pool(upstream):
    made = []

    def make(url=None, idle_seconds=4.0, **timeouts):
        made.append(HttpPool(Origin.parse(url or upstream.url), Timeouts(**timeouts), idle_seconds=idle_seconds))
        return made[-1]

    yield make
    for pool in made:
        await pool.close()


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.SelectorEventLoop, LaterLoop])
def test_a_pools_time_is_its_loops(new_loop):
    async def apart() -> float:
        pool = HttpPool(Origin.parse("http://127.0.0.1:1"), Timeouts())
        return abs(pool.clock() - asyncio.get_running_loop().time())

    with closing(new_loop()) as loop:
        assert loop.run_until_complete(apart()) < 100.0


async def ask(pool: HttpPool) -> Receiver:
    receiver = Receiver()
    await (await pool.send(HEAD, b"", receiver)).finished()
    return receiver


async def test_a_connection_is_used_again(new_pool, upstream):
    upstream.always(OK)
    pool = new_pool()
    for _ in range(5):
        reply = await ask(pool)
        assert (reply.status, reply.body, reply.headers[b"content-length"]) == (200, b"hi", b"2")
    assert upstream.accepted == 1


async def test_concurrent_requests_have_connections_of_their_own(new_pool, upstream):
    upstream.always(0.05, OK)
    pool = new_pool()
    await asyncio.gather(*(ask(pool) for _ in range(5)))
    assert upstream.accepted == 5
    upstream.always(OK)
    await asyncio.gather(*(ask(pool) for _ in range(5)))
    assert upstream.accepted == 5


@pytest.mark.parametrize(
    "reply",
    [
        OK.replace(b"content-length", b"connection: close\r\ncontent-length"),
        OK.replace(b"HTTP/1.1", b"HTTP/1.0"),
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad",
        OK + b"garbage",
    ],
    ids=["close", "1.0", "a second reply", "garbage after it"],
)
async def test_a_connection_that_cannot_be_trusted_is_not_used_again(new_pool, upstream, reply):
    upstream.always(reply)
    pool = new_pool()
    for count in (1, 2):
        assert (await ask(pool)).body == b"hi"
        assert upstream.accepted == count


async def test_bytes_on_an_idle_connection_close_it(new_pool, upstream, eventually):
    upstream.always(OK, 0.02, b"HTTP/1.1 200 OK\r\n\r\n")
    pool = new_pool()
    await ask(pool)
    await eventually(lambda: not upstream.open)
    await ask(pool)
    assert upstream.accepted == 2


async def test_an_idle_connection_is_closed_before_the_server_would(new_pool, upstream, eventually):
    upstream.always(OK)
    await ask(new_pool(idle_seconds=0.1))
    assert upstream.open
    await eventually(lambda: not upstream.open, 1.0)


@pytest.mark.parametrize(
    ("script", "timeouts", "words"),
    [
        (("stall",), {"first_byte": 0.1}, "silent for 0.1 s before it replied"),
        ((OK[:-2], "stall"), {"first_byte": 0.1, "between": 9}, "silent for 0.1 s before it replied"),
        ((OK[:-1], "stall"), {"between": 0.1}, "silent for 0.1 s between"),
        (([OK[:-2], *[0.05] * 9]), {"total": 0.2}, "more than 0.2 s in total"),
    ],
)
async def test_each_timeout_has_its_say(new_pool, upstream, eventually, script, timeouts, words):
    upstream.always(*script)
    with pytest.raises(UpstreamTimeout, match=words):
        await ask(new_pool(**timeouts))
    await eventually(lambda: not upstream.open)


async def test_pieces_that_come_in_time_are_never_cut_off(new_pool, upstream):
    upstream.always(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n", *[step for _ in range(8) for step in (0.05, b"x")])
    assert (await ask(new_pool(first_byte=0.15, between=0.15))).body == b"x" * 8


async def test_a_paused_exchange_is_not_called_silent(new_pool, upstream):
    upstream.always(OK[:-1], 0.05, OK[-1:])
    pool, receiver = new_pool(between=0.15), Receiver()
    exchange = await pool.send(HEAD, b"", receiver)
    while not receiver.body:
        await asyncio.sleep(0.002)
    exchange.pause()
    waiting = asyncio.create_task(exchange.finished())
    await asyncio.sleep(0.4)
    assert not waiting.done()
    exchange.resume()
    await waiting
    assert receiver.body == b"hi"


async def test_brakes_of_an_exchange_that_is_over_do_not_hold_the_next(new_pool, upstream):
    upstream.always(OK)
    pool = new_pool(first_byte=1.0)
    exchange = await pool.send(HEAD, b"", Receiver())
    await exchange.finished()
    exchange.pause()
    assert (await ask(pool)).body == b"hi"
    assert upstream.accepted == 1


async def test_a_request_into_a_connection_just_closed_is_sent_again_once_on_a_fresh_one(new_pool, upstream):
    for loss in ("close", "reset"):
        upstream.always(OK)
        pool = new_pool()
        await ask(pool)
        accepted = upstream.accepted
        upstream.then(loss)  # what the client sees of a server that had closed while the request was on its way
        assert (await ask(pool)).body == b"hi"
        assert upstream.accepted == accepted + 1


async def test_it_is_not_sent_a_third_time(new_pool, upstream):
    upstream.always(OK)
    pool = new_pool()
    await ask(pool)
    upstream.then("close")
    upstream.then("close")
    with pytest.raises(UpstreamBroken, match="before it replied"):
        await ask(pool)
    assert len(upstream.requests) == 3


async def test_a_fresh_connection_that_is_closed_is_the_targets_fault(new_pool, upstream):
    upstream.always("close")
    with pytest.raises(UpstreamBroken, match="before it replied"):
        await ask(new_pool())
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("first_bytes", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n", OK[:-1]])
async def test_after_a_single_byte_of_the_reply_nothing_is_sent_again(new_pool, upstream, first_bytes):
    upstream.always(OK)
    pool = new_pool()
    await ask(pool)
    upstream.then(first_bytes, 0.02, "close")
    with pytest.raises(UpstreamBroken):
        await ask(pool)
    assert len(upstream.requests) == 2


@pytest.mark.interpreted
@pytest.mark.parametrize(("after", "requests"), [(0.05, 3), (0.4, 2)])
async def test_a_server_that_takes_its_time_to_die_had_the_request(new_pool, upstream, monkeypatch, after, requests):
    monkeypatch.setattr("backends.http_client.http_connection._STALE_SECONDS", 0.2)
    upstream.always(OK)
    pool = new_pool()
    await ask(pool)
    upstream.then(after, "close")
    if requests == 3:
        assert (await ask(pool)).body == b"hi"
    else:
        with pytest.raises(UpstreamBroken, match="before it replied"):
            await ask(pool)
    assert len(upstream.requests) == requests


async def test_a_client_that_leaves_while_it_is_sent_again_leaves_nothing_behind(new_pool, upstream, eventually):
    upstream.always(OK)
    pool = new_pool()
    await ask(pool)
    upstream.always("stall")
    upstream.then("close")
    asking = asyncio.create_task(ask(pool))
    await eventually(lambda: len(upstream.requests) == 3)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await eventually(lambda: not upstream.open)
    await pool.close()


async def test_nobody_listening_and_no_such_host_are_unreachable(new_pool):
    for url in ("http://127.0.0.1:1", "http://no-such-host.invalid"):
        with pytest.raises(UpstreamUnreachable, match="cannot be reached"):
            await ask(new_pool(url))


async def test_plain_text_where_tls_is_expected_is_unreachable(new_pool, upstream):
    upstream.always(OK)
    with pytest.raises((UpstreamUnreachable, UpstreamTimeout)):
        await ask(new_pool(upstream.url.replace("http:", "https:"), connect=0.3))


async def test_closing_lets_an_exchange_under_way_finish_and_keeps_nothing(new_pool, upstream, eventually):
    upstream.always(OK[:-1], 0.1, OK[-1:])
    pool = new_pool()
    await ask(pool)
    asking = asyncio.create_task(ask(pool))
    await eventually(lambda: len(upstream.requests) == 2)
    await pool.close()
    assert (await asking).body == b"hi"
    await eventually(lambda: not upstream.open)


async def test_what_a_receiver_raises_reaches_the_caller(new_pool, upstream):
    class Picky(Receiver):
        def on_body(self, data: bytes) -> None:
            raise UpstreamBroken("not to my taste")

    upstream.always(OK)
    with pytest.raises(UpstreamBroken, match="not to my taste"):
        await (await new_pool().send(HEAD, b"", Picky())).finished()


@pytest.mark.parametrize(
    ("url", "authority", "prefix"),
    [
        ("http://a:8000/v1", "a:8000", "/v1"),
        ("http://a/v1/", "a:80", "/v1"),
        ("https://a", "a:443", ""),
        ("http://[::1]:9/x", "[::1]:9", "/x"),
    ],
)
def test_a_base_url_is_read(url, authority, prefix):
    origin = Origin.parse(url)
    assert (origin.authority, origin.prefix) == (authority, prefix)


@pytest.mark.parametrize(
    "url",
    ["", "a:8000", "ftp://a", "http://", "http://a?x=1", "http://u:p@a", "http://a:x", "http://a:70000", "http://a/b c",
     "http://a/\r\nx: y", "http://h\u00f6st/"],
)  # fmt: skip
def test_what_is_no_base_url_is_refused(url):
    with pytest.raises(ConfigurationError):
        Origin.parse(url)


@pytest.mark.parametrize("seconds", [0, -1])
@pytest.mark.parametrize("name", ["connect", "first_byte", "between", "total"])
def test_a_timeout_must_be_positive(name, seconds):
    with pytest.raises(ConfigurationError, match=name):
        Timeouts(**{name: seconds})


@pytest.mark.parametrize(
    ("deadlines", "next_due"),
    [
        ([], 102.0),  # nothing that begins from now on is due before its shortest time is over
        ([(103.0, 900.0)], 102.0),
        ([(101.5, 900.0), (101.75, 900.0)], 101.5),
        ([(900.0, 101.25)], 101.25),
    ],
)
async def test_nothing_is_looked_at_before_something_may_be_due(new_pool, deadlines, next_due):
    pool = new_pool(first_byte=3.0, between=2.0, total=10.0)
    for deadline, expires in deadlines:
        connection = Connection(pool)
        connection.deadline, connection.expires = deadline, expires
        pool._busy.add(connection)
    assert pool._expire(100.0) == next_due
    pool._busy.clear()


@pytest.mark.parametrize("at", ["on_head", "on_body"])
@pytest.mark.parametrize(
    "reply", [OK, OK + OK[:1], b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"]
)
async def test_what_the_receiver_raises_stays_what_it_is(new_pool, upstream, reply, at):
    """A fault of the one that takes a reply must not look like one of the server that has sent it."""
    pool = new_pool()
    upstream.always(reply)
    await ask(pool)  # a second reply with the same head is taken without the parser
    receiver = Receiver()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("the receiver's")

    setattr(receiver, at, fail)
    exchange = await pool.send(HEAD, b"", receiver)
    with pytest.raises(ZeroDivisionError, match="the receiver's"):
        await exchange.finished()
