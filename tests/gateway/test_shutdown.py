"""A stop: new requests are refused while the port is open, and answers cut at the drain limit end with an error."""

import asyncio
import json
from typing import Any

import pytest

CUT = "shutdown"
RESPONSES = {"model": "scripted-1", "input": "hello"}


@pytest.fixture
def stalled(start_gateway, kit):
    """Start a gateway whose scripted model stops answering after 3 tokens."""

    async def start(**settings):
        config = kit.configuration(("scripted-1", [kit.scripted(fault="stall", after=3)]))
        config["limits"] = [
            {"tenant": "acme", "level": "tenant", "metric": "tokens", "window": "minute", "amount": 100_000}
        ]
        return await start_gateway(config, **settings)

    return start


async def stop_and_read(gateway, client) -> bytes:
    """Stop the gateway and return what a client reads until its connection closes."""
    await gateway.gateway.stop()
    return await asyncio.wait_for(client.reader.read(), 5)


def last_event(raw: bytes) -> Any:
    """Return the last event's data of a chunked stream that ended in order."""
    assert raw.endswith(b"0\r\n\r\n"), raw
    return json.loads(raw[raw.rindex(b"data: ") + 6 :].split(b"\n")[0])


@pytest.mark.parametrize("road", ["plain", "traced"])
async def test_a_stream_cut_at_the_drain_limit_ends_with_an_error_event_and_counts_as_ours(stalled, road, tmp_path):
    headers = {} if road == "plain" else {"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"}
    gateway = await stalled(drain_seconds=0.2)
    client = await gateway.connect()
    await client.send(gateway.request(stream=True, headers=headers))
    await client.head()
    raw = await stop_and_read(gateway, client)
    error = last_event(raw)["error"]
    assert (error["code"], error["type"]) == (CUT, "server_error") and "3 tokens" in error["message"]
    assert b"[DONE]" not in raw
    again = await stalled(data=tmp_path / "data0")
    [record] = again.requests()
    assert (record.outcome, record.status, record.error_code) == ("error", 503, CUT)
    assert record.usage.output_tokens == 3 and record.cost_pico_usd is not None
    assert sum(record.charge_tokens) == record.usage.input_tokens + 3  # what was reserved beyond it went back


async def test_a_stream_of_an_upstream_that_goes_by_a_plan_is_cut_alike(start_gateway, kit, upstream, tmp_path):
    words = [upstream.piece(upstream.chunk(word)) for word in ("one ", "two ", "three ")]
    upstream.always(upstream.stream_head() + b"".join(words), "stall")
    config = kit.configuration(("mock", [kit.http_target(upstream.url)]))
    gateway = await start_gateway(config, drain_seconds=0.2)
    client = await gateway.connect()
    await client.send(gateway.request(model="mock", stream=True))
    await client.reader.readuntil(b"three ")
    raw = await stop_and_read(gateway, client)
    assert last_event(raw)["error"]["code"] == CUT
    again = await start_gateway(config, data=tmp_path / "data0")
    [record] = again.requests()
    assert (record.outcome, record.error_code, record.usage.output_tokens) == ("error", CUT, 3)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_every_api_puts_it_in_its_own_form(stalled, kit, path, stream):
    bodies = {
        "/v1/completions": {"model": "scripted-1", "prompt": "hello"},
        "/v1/messages": {**kit.BODY, "max_tokens": 100},
        "/v1/responses": RESPONSES,
    }
    gateway = await stalled(drain_seconds=0.2)
    client = await gateway.connect()
    await client.send(gateway.request({**bodies.get(path, kit.BODY), "stream": stream}, path=path))
    if stream:
        await client.head()
        raw = await stop_and_read(gateway, client)
        last = last_event(raw)
        if path == "/v1/messages":
            assert b"event: error\n" in raw and last["type"] == "error"
        elif path == "/v1/responses":
            assert last["type"] == "response.failed" and last["response"]["error"]["code"]
        else:
            assert last["error"]["code"] == CUT
        return
    await asyncio.sleep(0.1)
    stopping = asyncio.create_task(gateway.gateway.stop())
    answer = await asyncio.wait_for(client.answer(), 5)
    await stopping
    assert answer.headers["connection"] == "close" and await client.is_closed()
    if path == "/v1/messages":
        assert answer.status in (503, 529) and answer.json["type"] == "error"
    else:
        assert (answer.status, answer.json["error"]["code"]) == (503, CUT)


async def test_until_the_port_closes_new_requests_are_refused_in_their_apis_form(stalled, kit, eventually):
    gateway = await stalled(drain_seconds=5.0)
    busy, idle = await gateway.connect(), await gateway.connect()
    await busy.send(gateway.request(stream=True))
    await busy.head()
    stopping = asyncio.create_task(gateway.gateway.stop(notice_seconds=2.0))
    await asyncio.sleep(0.05)
    ready = await gateway.ask(b"GET /ready HTTP/1.1\r\nhost: g\r\n\r\n")
    assert (ready.status, ready.json["status"], ready.headers["connection"]) == (503, "draining", "close")
    await idle.send(gateway.request())  # a connection that was open before
    chat = await idle.answer()
    message = await gateway.ask(gateway.request({**kit.BODY, "max_tokens": 5}, path="/v1/messages"))
    models = await gateway.ask(b"GET /v1/models HTTP/1.1\r\nhost: g\r\nauthorization: Bearer x\r\n\r\n")
    for answer in (chat, message, models):
        assert answer.status in (503, 529) and answer.headers["connection"] == "close"
        assert int(answer.headers["retry-after"]) >= 1
    assert chat.json["error"]["code"] == models.json["error"]["code"] == "draining"
    assert message.json["type"] == "error" and await idle.is_closed()
    health = await gateway.ask(b"GET /health HTTP/1.1\r\nhost: g\r\n\r\n")
    assert health.status == 200
    busy.reset()
    await stopping
    with pytest.raises(OSError):
        await gateway.connect()


async def test_the_port_stays_open_for_the_notice_even_if_nothing_is_under_way(stalled):
    gateway = await stalled(drain_seconds=5.0)
    stopping = asyncio.create_task(gateway.gateway.stop(notice_seconds=60.0))
    await asyncio.sleep(0.1)
    assert (await gateway.chat()).status == 503 and not stopping.done()
    gateway.gateway.hurry()
    await asyncio.wait_for(stopping, 5)


async def test_a_drained_gateway_closes_its_port_once_nothing_is_under_way(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted(tokens=20, gap_ms=10)]))
    gateway = await start_gateway(config, drain_seconds=5.0)
    client = await gateway.connect()
    await client.send(gateway.request(stream=True))
    await client.head()
    draining = gateway.gateway.drain()
    await asyncio.sleep(0.05)
    assert (await gateway.chat()).json["error"]["code"] == "draining"
    assert b"".join([piece async for piece in client.pieces()]).endswith(b"data: [DONE]\n\n")
    await asyncio.wait_for(draining, 5)
    with pytest.raises(OSError):
        await gateway.connect()


async def test_an_answer_that_a_cascade_or_hedge_waits_for_is_recorded_as_cut_on_every_attempt(
    start_gateway, kit, tmp_path
):
    targets = [kit.scripted("s1", fault="error", after=0), kit.scripted("s2", fault="stall", after=2)]
    config = kit.configuration(("scripted-1", targets))
    gateway = await start_gateway(config, drain_seconds=0.2)
    client = await gateway.connect()
    await client.send(gateway.request(stream=True))
    await client.head()
    raw = await stop_and_read(gateway, client)
    assert last_event(raw)["error"]["code"] == CUT
    again = await start_gateway(config, data=tmp_path / "data0")
    codes = [(attempt.number, attempt.outcome, attempt.error_code) for attempt in again.attempts()]
    assert codes[-1] == (2, "error", CUT)
