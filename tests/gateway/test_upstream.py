"""OpenAI-compatible servers behind the gateway: what passes through untouched, what is read off it, what goes wrong."""

import asyncio
import json

import pytest

from contracts.metering.gaps import unpack_gaps

pytestmark = pytest.mark.smoke


@pytest.fixture
async def mock(start_gateway, kit, upstream):
    """A gateway before one model server with small timeouts."""
    target = kit.http_target(upstream.url, timeouts={"first_byte": 0.3, "between": 0.3})
    return await start_gateway(kit.configuration(("mock", [target])))


async def stream(gateway, **fields):
    return await gateway.chat(model="mock", stream=True, **fields)


def good_stream(upstream, *, usage=True, done=True):
    events = [upstream.chunk("Hel"), upstream.chunk("lo \u4e16"), upstream.chunk(finish="stop")]
    return events + ([upstream.usage(10, 2)] if usage else []) + ([upstream.event(b"[DONE]")] if done else [])


async def test_a_streams_bytes_go_through_as_they_came(mock, upstream):
    odd = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"logprobs":{"a":[1e-9]}}],  "vendor":{"z":null}}\n\n'
    events = [odd, *good_stream(upstream)]
    upstream.always(upstream.streamed(*events))
    answer = await stream(mock, stream_options={"include_usage": True})
    assert answer.body == b"".join(events)
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_a_whole_replys_bytes_go_through_as_they_came(mock, upstream):
    body = b'{ "choices":[{"index":0,"message":{"content":"\\u00e9"},"finish_reason":"stop"}], "vendor": 1e2 ,"x":null}'
    upstream.always(upstream.whole(body))
    assert (await mock.chat(model="mock")).body == body


async def test_a_request_goes_on_as_the_bytes_it_came_in_where_nothing_must_change(mock, upstream, kit):
    upstream.always(upstream.whole(upstream.completion()))
    body = b'{ "vendor_option": [1, 2.50],\n "model":"mock","messages":[{"role":"user","content":"\\u0041"}] }'
    assert (await mock.chat(body)).status == 200
    [request] = upstream.requests
    assert request.body == body
    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    assert request.headers["host"] == f"127.0.0.1:{upstream.port}"
    assert "authorization" not in request.headers  # the application's key stays here


async def test_the_model_is_renamed_and_the_servers_own_key_is_used(start_gateway, kit, upstream, monkeypatch):
    monkeypatch.setenv("UPSTREAM_KEY", "sk-upstream")
    upstream.always(upstream.whole(upstream.completion()))
    target = kit.http_target(upstream.url, model="org/real-name", key="env:UPSTREAM_KEY")
    gateway = await start_gateway(kit.configuration(("mock", [target])))
    trace = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    await gateway.chat(model="mock", vendor={"deep": [1, {"x": "\u00e9"}]}, headers={"traceparent": trace})
    [request] = upstream.requests
    assert request.json == {**kit.BODY, "model": "org/real-name", "vendor": {"deep": [1, {"x": "\u00e9"}]}}
    assert request.headers["authorization"] == "bearer sk-upstream"
    [record] = gateway.requests()
    assert request.headers["traceparent"] == f"00-{record.trace_id.hex()}-{record.span_id.hex()}-01"
    assert request.headers["x-request-id"].replace("-", "") == record.request_id.hex()
    assert (record.model, record.model_version) == ("mock", "served-1")


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, {"include_usage": True}),
        ({"stream_options": None}, {"include_usage": True}),
        ({"stream_options": {"include_usage": False}}, {"include_usage": True}),
        ({"stream_options": {"vendor": 7}}, {"vendor": 7, "include_usage": True}),
        ({"stream_options": {"include_usage": True, "vendor": 7}}, {"include_usage": True, "vendor": 7}),
    ],
)
async def test_usage_is_always_asked_for_and_shown_only_to_who_asked(mock, upstream, given, sent):
    upstream.always(upstream.streamed(*good_stream(upstream)))
    answer = await stream(mock, **given)
    assert upstream.requests[0].json["stream_options"] == sent
    wanted = (given.get("stream_options") or {}).get("include_usage") is True
    assert (b'"usage"' in answer.body) == wanted
    [record] = mock.requests()
    assert (record.usage.input_tokens, record.usage.output_tokens, record.count_method) == (10, 2, "reported")
    assert (record.cost_pico_usd, len(unpack_gaps(record.gaps))) == (10 * 1_000_000 + 2 * 2_000_000, 1)


async def test_usage_in_a_chunk_that_has_choices_is_kept_and_counted_once(mock, upstream):
    last = upstream.chunk(finish="stop", usage={"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6})
    upstream.always(upstream.streamed(upstream.chunk("Hi"), last, upstream.event(b"[DONE]")))
    answer = await stream(mock)
    assert last in answer.body
    [record] = mock.requests()
    assert (record.usage.input_tokens, record.usage.output_tokens) == (5, 1)


async def test_cumulative_usage_on_every_chunk_is_not_added_up(mock, upstream):
    def usage(count):
        return {"prompt_tokens": 5, "completion_tokens": count, "total_tokens": 5 + count}

    events = [upstream.chunk(f"t{count}", usage=usage(count)) for count in (1, 2, 3)]
    upstream.always(
        upstream.streamed(*events, upstream.chunk(finish="stop"), upstream.usage(5, 3), upstream.event(b"[DONE]"))
    )
    await stream(mock)
    [record] = mock.requests()
    assert (record.usage.input_tokens, record.usage.output_tokens, len(unpack_gaps(record.gaps))) == (5, 3, 2)


async def test_details_that_are_null_are_unknown_and_those_given_are_taken_apart(mock, upstream):
    upstream.then(upstream.whole(upstream.completion(usage={
        "prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
        "prompt_tokens_details": None, "completion_tokens_details": {"reasoning_tokens": None},
    })))  # fmt: skip
    upstream.then(upstream.whole(upstream.completion(usage={
        "prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 6}, "completion_tokens_details": {"reasoning_tokens": 3},
    })))  # fmt: skip
    for _ in range(2):
        assert (await mock.chat(model="mock")).status == 200
    first, second = (record.usage for record in mock.requests())
    assert (first.input_text, first.cache_read_text, first.output_text, first.output_reasoning) == (9, None, 4, None)
    assert (second.input_text, second.cache_read_text, second.output_text, second.output_reasoning) == (3, 6, 1, 3)


async def test_usage_that_is_missing_is_estimated_and_marked(mock, upstream, kit):
    upstream.always(upstream.streamed(*good_stream(upstream, usage=False)))
    await stream(mock)
    [record] = mock.requests()
    assert (record.count_method, record.usage.output_tokens) == ("estimate", 3), "three words"
    assert record.usage.input_tokens == pytest.approx(record.request_bytes / 4, abs=1)
    assert record.cost_pico_usd is not None


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
        {"prompt_tokens": -3, "completion_tokens": 2},
        {"prompt_tokens": 10**18, "completion_tokens": 2},
    ],
)
async def test_usage_that_contradicts_itself_is_not_believed_and_the_answer_stands(mock, upstream, usage):
    upstream.then(upstream.whole(upstream.completion(usage=usage)))
    upstream.then(upstream.streamed(upstream.chunk("Hi"), upstream.chunk(finish="stop", usage=usage)))
    assert (await mock.chat(model="mock")).status == 200
    assert (await stream(mock)).status == 200
    assert [record.count_method for record in mock.requests()] == ["estimate", "estimate"]


async def test_an_absurd_count_of_tokens_is_not_turned_into_as_many_gaps(mock, upstream):
    upstream.always(
        upstream.streamed(upstream.chunk("Hi"), upstream.chunk(finish="stop"), upstream.usage(3, 2**32 - 1))
    )
    assert (await stream(mock)).status == 200
    [record] = mock.requests()
    assert record.usage.output_tokens == 2**32 - 1 and record.gaps == b""


@pytest.mark.parametrize(
    "ending",
    [b"data: [DONE]\n\n", b"data: [DONE]\r\n\r\n", b"data: [DONE]\n", b"data: [DONE]", b"data:[DONE]\n\n", b""],
)
async def test_a_stream_may_end_its_last_line_as_it_likes_once_it_has_a_finish_reason(mock, upstream, ending):
    events = good_stream(upstream, done=False)
    upstream.always(upstream.streamed(*events, *([ending] if ending else [])))
    answer = await stream(mock)
    assert answer.events[-1] == b"data: [DONE]" and answer.body.count(b"[DONE]") == 1
    assert mock.requests()[0].outcome == "ok"


async def test_comments_and_keep_alives_are_not_passed_on(mock, upstream):
    upstream.always(upstream.streamed(b": ping\n\n", *good_stream(upstream), b": bye\n\n"))
    answer = await stream(mock)
    assert b"ping" not in answer.body and answer.events[-1] == b"data: [DONE]"


BROKEN = {
    "cut between events": lambda up: (up.stream_head() + up.piece(up.chunk("Hi")) + up.END,),
    "cut in an event": lambda up: (up.stream_head() + up.piece(up.chunk("Hi") + b'data: {"cho') + up.END,),
    "closed": lambda up: (up.stream_head() + up.piece(up.chunk("Hi")), 0.02, up.CLOSE),
    "reset": lambda up: (up.stream_head() + up.piece(up.chunk("Hi")), 0.02, up.RESET),
    "silent": lambda up: (up.stream_head() + up.piece(up.chunk("Hi")), up.STALL),
    "garbage": lambda up: (up.streamed(up.chunk("Hi"), up.event(b"<html>oops")),),
    "wrong types": lambda up: (up.streamed(up.chunk("Hi"), up.event({"choices": 5})),),
    "an error event": lambda up: (up.streamed(up.chunk("Hi"), up.event({"error": {"message": "CUDA out of memory"}})),),
    "a bad chunk size": lambda up: (up.stream_head() + up.piece(up.chunk("Hi")) + b"zz\r\n",),
    "closed without length": lambda up: (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + up.chunk("Hi"),
        0.02,
        up.CLOSE,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_stream_that_breaks_ends_by_an_error_event_and_without_done(mock, upstream, name):
    upstream.always(*BROKEN[name](upstream))
    answer = await stream(mock)
    assert answer.status == 200 and b"[DONE]" not in answer.body
    assert answer.events[0] == upstream.chunk("Hi").strip()
    error = json.loads(answer.events[-1].removeprefix(b"data: "))["error"]
    assert error["code"] == ("upstream_timeout" if name == "silent" else "upstream_broken")
    if name == "an error event":
        # What a model's server says may repeat a prompt: it is in no log.
        assert "reported an error" in mock.reasons[-1] and "CUDA" not in mock.reasons[-1]
    [record] = mock.requests()
    assert (record.outcome, record.usage.output_tokens, record.count_method) == ("error", 1, "estimate")


WHOLE_FAULTS = {
    "garbage": (lambda up: (up.whole(b"<html>"),), 502, "upstream_broken"),
    "no choices": (lambda up: (up.whole({"error": {"message": "model is loading"}}),), 502, "upstream_broken"),
    "cut short": (lambda up: (up.whole(up.completion())[:-5], 0.02, up.CLOSE), 502, "upstream_broken"),
    "huge headers": (lambda up: (up.whole({}, headers="x: " + "y" * 100_000 + "\r\n"),), 502, "upstream_broken"),
    "endless headers": (lambda up: (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, up.STALL), 502, "upstream_broken"),
    "silent": (lambda up: (up.STALL,), 504, "upstream_timeout"),
    "silent after its head": (lambda up: (up.whole({})[:-2], up.STALL), 504, "upstream_timeout"),
    "500": (lambda up: (up.whole({}, 500),), 502, "upstream_error"),
    "503 with HTML": (lambda up: (up.whole(b"<html>", 503),), 502, "upstream_error"),
    "401": (lambda up: (up.whole({"error": "sk-secret is wrong"}, 401),), 502, "upstream_credentials_refused"),
    "404": (lambda up: (up.whole({}, 404),), 502, "upstream_not_found"),
    "301": (lambda up: (up.whole(b"", 301, headers="location: http://127.0.0.1:1/\r\n"),), 502, "upstream_redirected"),
    "an endless error": (lambda up: (up.whole(b"x" * 100_000, 500),), 502, "upstream_error"),
    "an upgrade": (
        lambda up: (b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",),
        502,
        "upstream_broken",
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", WHOLE_FAULTS)
async def test_a_server_that_fails_before_anything_was_sent_is_an_error_of_its_own(mock, upstream, name, streamed):
    script, status, code = WHOLE_FAULTS[name]
    upstream.always(*script(upstream))
    answer = await mock.chat(model="mock", stream=streamed)
    if streamed and name in ("cut short", "silent after its head"):
        code, status = "upstream_broken", 502  # a stream that is announced as JSON is refused at its head
    assert (answer.status, answer.error["code"], answer.error["type"]) == (status, code, "api_error")
    assert b"sk-secret" not in answer.body
    [record] = mock.requests()
    assert (record.outcome, record.status) == ("error", status)
    assert record.count_method == ("estimate" if code in ("upstream_broken", "upstream_timeout") else "none")


async def test_a_stream_request_answered_with_json_is_an_error(mock, upstream):
    upstream.always(upstream.whole(upstream.completion()))
    assert (await stream(mock)).error["code"] == "upstream_broken"


async def test_interim_answers_are_passed_over(mock, upstream):
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    upstream.always(interim + upstream.whole(upstream.completion()))
    for _ in range(2):
        assert (await mock.chat(model="mock")).status == 200
    assert upstream.accepted == 1


async def test_a_connection_that_the_server_closed_while_idle_costs_nobody_an_error(mock, upstream, eventually):
    upstream.always(upstream.whole(upstream.completion()), 0.01, upstream.CLOSE)
    for count in range(1, 4):
        assert (await mock.chat(model="mock")).status == 200
        await eventually(lambda count=count: len(upstream.lost_at) == count)
    assert upstream.accepted == 3


async def test_a_second_reply_nobody_asked_for_reaches_no_other_request(mock, upstream):
    smuggled = upstream.whole(upstream.completion("somebody else's"))
    upstream.then(upstream.whole(upstream.completion("first")) + smuggled)
    upstream.always(upstream.whole(upstream.completion("second")))
    texts = [(await mock.chat(model="mock")).json["choices"][0]["message"]["content"] for _ in range(2)]
    assert texts == ["first", "second"] and upstream.accepted == 2


async def test_a_slow_client_holds_the_server_back_and_then_gets_everything(start_gateway, kit, upstream):
    # The timeout between pieces is far shorter than the client's pause: a server that is held back is not silent.
    target = kit.http_target(upstream.url, timeouts={"between": 0.2})
    gateway = await start_gateway(kit.configuration(("mock", [target])))
    events = [upstream.chunk("x" * 50_000) for _ in range(1000)]  # 50 MB
    upstream.always(
        upstream.stream_head(),
        *map(upstream.piece, events),
        upstream.piece(upstream.chunk(finish="stop")),
        upstream.END,
    )
    client = await gateway.connect()
    await client.send(gateway.request(model="mock", stream=True))
    await client.head()
    client.writer.transport.pause_reading()
    await asyncio.sleep(0.6)
    held = upstream.bytes_written
    assert held < 35_000_000, held  # what all the sockets on the way hold, and no more
    [connection] = gateway.gateway._server._connections
    assert connection._transport.get_write_buffer_size() < 2_000_000
    await asyncio.sleep(0.1)
    assert upstream.bytes_written == held
    client.writer.transport.resume_reading()
    body = b"".join([piece async for piece in client.pieces()])
    assert body.endswith(b"data: [DONE]\n\n") and body.count(b"x" * 50_000) == 1000
    assert gateway.requests()[0].outcome == "ok"


async def test_a_client_slow_to_take_one_answer_does_not_stall_the_next_request(start_gateway, kit, upstream):
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    upstream.then(upstream.whole(upstream.completion("x" * 16_000_000)))
    upstream.always(upstream.whole(upstream.completion()))
    slow = await gateway.connect()
    slow.writer.transport.pause_reading()
    await slow.send(gateway.request(model="mock"))
    while not gateway.requests():
        await asyncio.sleep(0.005)
    answer = await asyncio.wait_for(gateway.chat(model="mock"), 3)
    assert answer.status == 200 and upstream.accepted == 1  # over the very connection
