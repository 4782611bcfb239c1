"""What comes with a stream's end leaves with it, in one sending; what comes before the end does not wait for it."""

import httpx
import pytest

from gateway.wire.exchange import Exchange, Line, RequestHead
from tests.gateway.conftest import KEY


class _Line(Line):
    def __init__(self):
        self.sent, self.is_finished = [], False

    def write(self, data):
        self.sent.append(data)

    def writer(self):
        return self.write

    def finished(self, *, keep_alive):
        self.is_finished = True

    def hold(self, pause, resume):
        pass

    async def drained(self):
        pass


def begun(version="1.1"):
    line = _Line()
    exchange = Exchange(line, RequestHead("POST", "/v1/chat/completions", "", version, {}, True), b"{}", "127.0.0.1")
    exchange.start(200, b"text/event-stream")
    line.sent.clear()
    return line, exchange


def test_what_is_held_back_leaves_with_the_end_and_is_counted_once():
    line, exchange = begun()
    before = exchange.bytes_sent
    exchange.hold_back(b"data: 1\n\n")
    exchange.hold_back(b"data: 2\n\n")
    assert line.sent == []
    exchange.end(b"data: [DONE]\n\n")
    assert line.sent == [b"9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"]
    assert exchange.bytes_sent - before == len(line.sent[0])
    assert line.is_finished


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_what_is_held_back_keeps_its_place(version):
    line, exchange = begun(version)
    exchange.hold_back(b"a")
    exchange.write(b"b")
    exchange.hold_back(b"c")
    exchange.send_held_back()
    exchange.send_held_back()  # nothing is left
    exchange.hold_back(b"d")
    exchange.end()
    framed = {"1.1": [b"1\r\na\r\n1\r\nb\r\n", b"1\r\nc\r\n", b"1\r\nd\r\n0\r\n\r\n"], "1.0": [b"ab", b"c", b"d"]}
    assert line.sent == framed[version]


def test_nothing_is_sent_to_a_client_that_has_left():
    line, exchange = begun()
    exchange.hold_back(b"a")
    exchange.is_gone = True
    exchange.send_held_back()
    exchange.end(b"b")
    assert line.sent == []


@pytest.mark.parametrize("wants_usage", [False, True])
async def test_an_answers_end_does_not_wait_for_what_comes_long_after_it(start_gateway, kit, upstream, wants_usage):
    upstream.always(
        upstream.stream_head(),
        upstream.piece(upstream.chunk("Hello", model="m")),
        upstream.piece(upstream.chunk(finish="stop", model="m")),
        1.0,
        upstream.piece(upstream.usage(3, 1)),
        upstream.piece(upstream.event(b"[DONE]")),
        upstream.END,
    )
    running = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    body = {"model": "mock", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    if wants_usage:
        body["stream_options"] = {"include_usage": True}
    async with httpx.AsyncClient(base_url=running.base_url, headers={"authorization": f"Bearer {KEY}"}) as client:
        for _ in range(2):  # the second goes by a plan
            read = at_finish = b""
            async with client.stream("POST", "/chat/completions", json=body) as answer:
                async for piece in answer.aiter_raw():
                    read += piece
                    if not at_finish and b"stop" in read:
                        at_finish = read
            assert at_finish and b"[DONE]" not in at_finish and b"usage" not in at_finish
            assert read.endswith(b"data: [DONE]\n\n")
            assert (b"usage" in read) is wants_usage
