"""How one connection carries requests: old clients, reuse, pipelining, closing, draining."""

import asyncio
import gc
import json
import re
import subprocess
import sys

import pytest

from gateway.wire.http import HttpConnection

LARGE = 16 * 1024 * 1024  # more than the system's socket buffers take


async def test_an_http_1_0_client_gets_a_whole_answer_and_a_closed_connection(gateway):
    client = await gateway.connect()
    await client.send(gateway.request(version="1.0"))
    answer = await client.answer()
    assert answer.status == 200 and answer.json["usage"]["completion_tokens"] == 27
    assert answer.headers["connection"] == "close"
    assert await client.is_closed()


async def test_an_http_1_0_client_gets_a_stream_that_is_not_chunked(gateway):
    client = await gateway.connect()
    await client.send(gateway.request(version="1.0", stream=True, headers={"Connection": "keep-alive"}))
    answer = await client.answer()
    assert "transfer-encoding" not in answer.headers
    assert answer.headers["connection"] == "close"
    assert answer.events[-1] == b"data: [DONE]"


async def test_an_http_1_0_client_may_keep_its_connection(gateway):
    client = await gateway.connect()
    for _ in range(2):
        await client.send(gateway.request(version="1.0", headers={"Connection": "keep-alive"}))
        assert (await client.answer()).headers["connection"] == "keep-alive"


async def test_a_connection_is_used_again_after_every_kind_of_answer(gateway):
    client = await gateway.connect()
    for body, status in ((None, 200), (b"{", 400), (None, 200)):
        for streamed in (False, True):
            await client.send(gateway.request(body) if body else gateway.request(stream=streamed))
            assert (await client.answer()).status == status
    assert gateway.gateway.health()["connections"] == 1


@pytest.mark.parametrize("digits", [25, 250_000])
async def test_a_flood_of_digits_behind_a_known_head_is_refused_as_by_the_parser(gateway, digits):
    client = await gateway.connect()
    await client.send(gateway.request())
    assert (await client.answer()).status == 200
    head, _, rest = re.split(rb"(?i)(?<=content-length: )(\d+)", gateway.request(), maxsplit=1)
    await client.send(head + b"9" * digits + rest)
    answer = await client.answer()
    assert answer.status == 400 and "valid HTTP" in answer.json["error"]["message"]
    assert await client.is_closed()


async def test_a_client_that_asks_to_close_is_closed(gateway):
    client = await gateway.connect()
    await client.send(gateway.request(headers={"Connection": "close"}))
    answer = await client.answer()
    assert answer.headers["connection"] == "close" and await client.is_closed()


@pytest.mark.parametrize("streamed", [False, True])
async def test_pipelined_requests_are_answered_in_order(start_gateway, kit, streamed):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted(gap_ms=1)])))
    client = await gateway.connect()
    health = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    data = b""
    for number in range(1, 7):
        data += gateway.request(max_tokens=number, stream=streamed) + health
    await client.send(data)
    for number in range(1, 7):
        answer = await client.answer()
        text = answer.body.decode()
        tokens = text.count('"content":') - 1 if streamed else answer.json["usage"]["completion_tokens"]
        assert tokens == number
        assert (await client.answer()).json == {"status": "ok"}
    assert [record.usage.output_tokens for record in gateway.requests()] == [1, 2, 3, 4, 5, 6]


async def test_a_pipelined_request_that_is_broken_does_not_spoil_the_answer_before_it(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted(first_ms=30)])))
    client = await gateway.connect()
    await client.send(gateway.request() + b"\x00broken\r\n\r\n")
    assert (await client.answer()).status == 200
    assert await client.is_closed()
    assert [record.outcome for record in gateway.requests()] == ["ok"]


async def test_requests_split_at_every_byte_are_read_the_same(gateway):
    client = await gateway.connect()
    data = gateway.request(max_tokens=1)
    for offset in range(1, len(data), 3):
        await client.send(data[:offset])
        await asyncio.sleep(0.001)
        await client.send(data[offset:])
        assert (await client.answer()).status == 200


async def test_a_chunked_request_body_is_read_in_any_pieces(gateway, kit):
    body = json.dumps(kit.BODY).encode()
    head = gateway.request(headers={"Content-Length": "", "Transfer-Encoding": "chunked"}).partition(b"\r\n\r\n")[0]
    for size in (1, 7, len(body)):
        chunks = b"".join(
            b"%x;name=value\r\n%b\r\n" % (len(body[start : start + size]), body[start : start + size])
            for start in range(0, len(body), size)
        )
        answer = await gateway.ask(head + b"\r\n\r\n" + chunks + b"0\r\nX-Trailer: a\r\n\r\n")
        assert answer.status == 200, answer.body


async def test_an_idle_connection_is_closed_after_its_time(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])), idle_seconds=0.2)
    silent, used = await gateway.connect(), await gateway.connect()
    await used.send(gateway.request())
    await used.answer()
    assert await silent.is_closed() and await used.is_closed()


async def test_a_client_that_does_not_read_its_whole_answer_is_cut_off(start_gateway, kit, upstream, eventually):
    upstream.always(upstream.whole(upstream.completion("x" * LARGE)))
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])), write_seconds=0.3)
    client = await gateway.connect()
    client.writer.transport.pause_reading()
    await client.send(gateway.request(model="mock"))
    await eventually(lambda: gateway.requests())
    assert gateway.gateway.health()["connections"] == 1
    await eventually(lambda: gateway.gateway.health()["connections"] == 0)


async def test_the_answer_under_way_is_finished_at_a_stop_and_nothing_new_begins(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted(tokens=20, gap_ms=10)]))
    gateway = await start_gateway(config, drain_seconds=5.0)
    busy, idle = await gateway.connect(), await gateway.connect()
    await busy.send(gateway.request(stream=True))
    await busy.head()
    stopping = asyncio.create_task(gateway.gateway.stop())
    assert await idle.is_closed()
    body = b"".join([piece async for piece in busy.pieces()])
    assert body.endswith(b"data: [DONE]\n\n") and await busy.is_closed()
    with pytest.raises(OSError):
        await gateway.connect()
    await stopping


async def test_a_large_answer_is_flushed_before_a_stop_cuts_its_connection(start_gateway, kit, upstream, eventually):
    upstream.always(upstream.whole(upstream.completion("x" * LARGE)))
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])), drain_seconds=10.0)
    client = await gateway.connect()
    client.writer.transport.pause_reading()
    await client.send(gateway.request(model="mock"))
    await eventually(lambda: gateway.requests())  # the answer is written, as far as the gateway is concerned
    stopping = asyncio.create_task(gateway.gateway.stop())
    await asyncio.sleep(0.05)
    client.writer.transport.resume_reading()
    answer = await asyncio.wait_for(client.answer(), 10)
    assert len(answer.json["choices"][0]["message"]["content"]) == LARGE
    await stopping


async def test_what_does_not_finish_in_the_drain_time_is_cut_and_recorded(start_gateway, kit, tmp_path):
    config = kit.configuration(("scripted-1", [kit.scripted(fault="stall", after=3)]))
    gateway = await start_gateway(config, drain_seconds=0.1)
    client = await gateway.connect()
    await client.send(gateway.request(stream=True))
    await client.head()
    await gateway.gateway.stop()
    again = await start_gateway(config, data=tmp_path / "data0")
    [record] = again.requests()
    assert (record.outcome, record.error_code, record.usage.output_tokens) == ("error", "shutdown", 3)


@pytest.mark.parametrize("then", [b"", b"\x00 garbage \r\n\r\n"], ids=["silent", "garbage after it"])
async def test_a_client_that_does_not_read_holds_the_model_back(start_gateway, kit, eventually, then):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted(tokens=1_000_000)])))
    client = await gateway.connect()
    client.writer.transport.pause_reading()
    await client.send(gateway.request(stream=True) + then)
    [connection] = gateway.gateway._server._connections
    await eventually(lambda: connection._is_write_paused)
    await asyncio.sleep(0.2)
    assert connection._is_write_paused and connection._transport.get_write_buffer_size() < 200_000
    assert not gateway.requests()
    client.reset()
    await eventually(lambda: gateway.requests())
    assert gateway.requests()[0].outcome == "cancelled"


async def test_a_connection_that_is_lost_is_freed_without_the_garbage_collector(gateway, eventually):
    def alive():
        return sum(isinstance(one, HttpConnection) for one in gc.get_objects())

    gc.freeze()  # what other tests left is not looked at
    gc.disable()
    try:
        for _ in range(20):
            client = await gateway.connect()
            await client.send(gateway.request())
            assert (await client.answer()).status == 200
            client.reset()
        await eventually(lambda: gateway.gateway.health()["connections"] == 0)
        del client
        assert alive() <= 1
    finally:
        gc.enable()


def test_libraries_for_engine_hosts_load_with_the_first_engine_host():
    loaded = (
        "import gateway.process.app, sys; print([name for name in ('tokenizers', 'jinja2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
