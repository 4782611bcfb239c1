"""Bytes that are no request, or two requests to two readers: refused, the connection closed, the process alive."""

import asyncio
import json

import pytest

KEY = "tk-" + "A" * 43
HEAD = (
    f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n"
    "Content-Type: application/json\r\n"
)
BODY = json.dumps({"model": "scripted-1", "messages": [{"role": "user", "content": "a b"}]})
CHUNKED = HEAD + "Transfer-Encoding: chunked\r\n\r\n"

FRAMINGS = {
    "both lengths, length first": (HEAD + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "both lengths, coding first": (HEAD + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
    "a repeated length": (HEAD + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 400),
    "a repeated equal length": (HEAD + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400),
    "a list of lengths": (HEAD + "Content-Length: 5, 5\r\n\r\nhello", 400),
    "a negative length": (HEAD + "Content-Length: -1\r\n\r\n", 400),
    "a signed length": (HEAD + "Content-Length: +5\r\n\r\nhello", 400),
    "a length in hexadecimal": (HEAD + "Content-Length: 0x5\r\n\r\nhello", 400),
    "a length of 30 digits": (HEAD + f"Content-Length: {10**29}\r\n\r\n", 400),
    "an empty length": (HEAD + "Content-Length: \r\n\r\n", 400),
    "a chunk size that is not a number": (CHUNKED + "xyz\r\nabc\r\n0\r\n\r\n", 400),
    "a negative chunk size": (CHUNKED + "-1\r\nabc\r\n0\r\n\r\n", 400),
    "a chunk size of 20 digits": (CHUNKED + "f" * 20 + "\r\n", 400),
    "a chunk longer than its size": (CHUNKED + "2\r\nabcdef\r\n0\r\n\r\n", 400),
    "a folded header": (HEAD + "X-Long: a\r\n b\r\nContent-Length: 0\r\n\r\n", 400),
    "another coding": (HEAD + "Transfer-Encoding: gzip\r\n\r\n", 400),
    "two codings": (HEAD + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    "two codings in two headers": (
        HEAD + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "a coding under HTTP/1.0": (CHUNKED.replace("HTTP/1.1", "HTTP/1.0") + "0\r\n\r\n", 400),
    "a compressed body": (HEAD + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", 415),
    "no host": (HEAD.replace("Host: a\r\n", "") + "Content-Length: 0\r\n\r\n", 400),
    "two hosts": (HEAD + "Host: b\r\nContent-Length: 0\r\n\r\n", 400),
    "two keys": (HEAD + "Authorization: Bearer x\r\nContent-Length: 0\r\n\r\n", 400),
    "an upgrade": (HEAD + "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n", 400),
    "CONNECT": ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "HTTP/2 by prior knowledge": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "HTTP/3.0": ("GET /health HTTP/3.0\r\nHost: a\r\n\r\n", 400),
    "NUL in a header": (HEAD + "X: a\0b\r\nContent-Length: 0\r\n\r\n", 400),
    "a space before the colon": (HEAD + "X : a\r\nContent-Length: 0\r\n\r\n", 400),
    "a header without a name": (HEAD + ": a\r\nContent-Length: 0\r\n\r\n", 400),
    "line feeds alone": ("GET /health HTTP/1.1\nHost: a\n\n", 400),
    "a carriage return in a header": (HEAD + "X: a\rb\r\nContent-Length: 0\r\n\r\n", 400),
    "no HTTP at all": ("\x00\x01\x02\x03 hello\r\n\r\n", 400),
    "a TLS hello": ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "\x07" * 64, 400),
}


@pytest.fixture
async def small(start_gateway, kit):
    """A gateway with small limits; afterwards it must still serve and have counted nothing."""
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(
        config, max_header_bytes=2048, max_header_count=20, max_body_bytes=4096, head_seconds=0.3, body_seconds=0.3
    )
    yield gateway
    assert gateway.records() == []
    assert gateway.gateway.admission.in_flight == 0
    assert (await gateway.ask(gateway.request(version="1.1"))).status == 200
    assert len(gateway.requests()) == 1


async def refusal(gateway, data: bytes):
    """Send bytes; return the refusal, after which the connection must be closed without another byte."""
    client = await gateway.connect()
    await client.send(data)
    answer = await asyncio.wait_for(client.answer(), 5)
    assert answer.headers["connection"] == "close"
    assert await client.is_closed()
    return answer


@pytest.mark.parametrize("name", FRAMINGS)
async def test_framing_that_two_readers_could_read_in_two_ways_is_refused(small, name):
    data, status = FRAMINGS[name]
    answer = await refusal(small, data.encode("latin-1"))
    assert answer.status == status and answer.error["type"] == "invalid_request_error"


@pytest.mark.parametrize("name", FRAMINGS)
async def test_it_is_refused_the_same_when_it_comes_byte_by_byte(small, name):
    data, status = FRAMINGS[name]
    client = await small.connect()
    for byte in data.encode("latin-1"):
        client.writer.write(bytes([byte]))
        if byte == 10:
            await asyncio.sleep(0)
    answer = await asyncio.wait_for(client.answer(), 5)
    assert answer.status == status


def head_of(size: int) -> bytes:
    """A request whose path and headers, counted as name, value and four bytes a line, have this size."""
    start = "GET /health HTTP/1.1\r\nHost: a\r\nX: "
    counted = len("/health") + len("Host: a\r\n") + len("X: \r\n")
    return (start + "x" * (size - counted) + "\r\n\r\n").encode()


@pytest.mark.parametrize(("size", "status"), [(2047, 200), (2048, 200), (2049, 431), (200_000, 431)])
@pytest.mark.parametrize("pieces", [1, 7])
async def test_headers_are_held_to_their_size(small, size, status, pieces):
    data = head_of(size)
    client = await small.connect()
    step = len(data) // pieces + 1
    for start in range(0, len(data), step):
        await client.send(data[start : start + step])
        await asyncio.sleep(0.002)
    answer = await asyncio.wait_for(client.answer(), 5)
    assert answer.status == status
    if status == 431:
        assert answer.error["code"] == "headers_too_large" and "2048" in answer.error["message"]


@pytest.mark.parametrize(("count", "status"), [(19, 200), (20, 200), (21, 431)])
async def test_headers_are_held_to_their_number(small, count, status):
    lines = "".join(f"X-{number}: v\r\n" for number in range(count - 1))
    answer = await small.ask(f"GET /health HTTP/1.1\r\nHost: a\r\n{lines}\r\n".encode())
    assert answer.status == status
    if status == 431:
        message = answer.error["message"]
        assert "more than 20 headers" in message and "TOLLKEEPER_MAX_HEADER_COUNT" in message


async def test_a_long_path_is_held_to_the_headers_size(small):
    answer = await refusal(small, b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    assert answer.status == 431


@pytest.mark.parametrize(("size", "status"), [(4095, 404), (4096, 404), (4097, 413), (100_000_000, 413)])
async def test_a_body_is_held_to_its_size_by_its_stated_length(small, size, status):
    body = b"x" * min(size, 200_000)  # the largest is refused before it is sent
    answer = await small.ask(b"POST /nope HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + body)
    assert answer.status == status
    if status == 413:
        assert answer.error["code"] == "body_too_large"
        assert str(size) in answer.error["message"] and "4096" in answer.error["message"]


@pytest.mark.parametrize(("size", "status"), [(4095, 404), (4096, 404), (4097, 413), (400_000, 413)])
async def test_a_body_is_held_to_its_size_as_its_chunks_arrive(small, size, status):
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (b"x" * 1000, b"x" * (size - 1000)))
    answer = await small.ask(
        b"POST /nope HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    )
    assert answer.status == status


@pytest.mark.parametrize("rest", [b"5;x=", b"0\r\nX-Trailer: "])
async def test_an_endless_chunk_extension_or_trailer_is_cut_off(small, rest):
    client = await small.connect()
    await client.send(CHUNKED.encode() + rest)
    for _ in range(100):
        client.writer.write(b"y" * 1000)
        await asyncio.sleep(0)
    answer = await asyncio.wait_for(client.answer(), 5)
    assert answer.status == 431


async def test_a_trailer_does_not_pass_for_a_header(small):
    head = HEAD.replace(f"Authorization: Bearer {KEY}\r\n", "") + "Transfer-Encoding: chunked\r\n\r\n"
    body = f"{len(BODY):x}\r\n{BODY}\r\n0\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    answer = await small.ask((head + body).encode())
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    "start",
    [b"GET /hea", b"GET /health HTTP/1.1\r\nHost: a\r\nX-Slow: ", HEAD.encode() + b"Content-Length: 50\r\n\r\n{"],
    ids=["line", "header", "body"],
)
async def test_a_request_that_never_ends_times_out(small, start):
    client = await small.connect()
    await client.send(start)
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await asyncio.wait_for(client.answer(), 3)
    assert (answer.status, answer.error["code"]) == (408, "request_timeout")
    assert 0.25 <= loop.time() - began < 2
    assert await client.is_closed()


@pytest.mark.parametrize("drip", [b"a", b"\r\n"], ids=["header bytes", "empty lines"])
async def test_a_client_that_drips_bytes_does_not_hold_its_connection(small, drip):
    client = await small.connect()
    await client.send(b"GET /health HTTP/1.1\r\nHost: a\r\nX: " if drip == b"a" else b"\r\n")

    async def drip_on() -> None:
        while True:
            await asyncio.sleep(0.05)
            await client.send(drip)

    dripping = asyncio.create_task(drip_on())
    answer = await asyncio.wait_for(client.answer(), 3)
    assert answer.status == 408
    dripping.cancel()
    await asyncio.gather(dripping, return_exceptions=True)


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_may_leave_at_any_byte_of_its_request(small, how, eventually):
    data = small.request()
    for offset in range(len(data)):
        client = await small.connect()
        await client.send(data[:offset])
        getattr(client, how)()
    await eventually(lambda: small.gateway.health()["connections"] == 0)


async def test_a_flood_of_pipelined_requests_is_refused_after_the_first_answer(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted(first_ms=50)])))
    client = await gateway.connect()
    await client.send(gateway.request() * 1000)
    assert (await client.answer()).status == 200
    assert await client.is_closed()
    assert len(gateway.requests()) == 1
    assert (await gateway.chat()).status == 200


async def test_a_client_that_pipelines_and_never_reads_does_not_fill_memory(gateway):
    client = await gateway.connect()
    client.writer.transport.pause_reading()
    sent = 0
    try:
        async with asyncio.timeout(1.0):
            while True:
                await client.send(b"GET /nope HTTP/1.1\r\nHost: a\r\n\r\n" * 500)
                sent += 500
    except (TimeoutError, ConnectionError):
        pass
    [connection] = gateway.gateway._server._connections or [None]
    waiting = connection._transport.get_write_buffer_size() if connection else 0
    assert waiting < 8 * 1024 * 1024, (waiting, sent)
    assert (await gateway.chat()).status == 200


async def test_expect_100_continue_is_answered_before_the_body_is_sent(gateway):
    client = await gateway.connect()
    head, _, body = gateway.request(headers={"Expect": "100-continue"}).partition(b"\r\n\r\n")
    await client.send(head + b"\r\n\r\n")
    assert (await client.head())[0] == 100
    await client.send(body)
    assert (await client.answer()).status == 200


async def test_expect_100_continue_for_too_large_a_body_is_refused_at_once(small):
    answer = await refusal(small, HEAD.encode() + b"Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n")
    assert answer.status == 413
