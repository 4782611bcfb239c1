"""Text completions at OpenAI-compatible servers: bytes through, usage in whichever shape, what must be changed."""

import json

import pytest

from contracts.metering.gaps import unpack_gaps


@pytest.fixture
async def mock(start_gateway, kit, upstream):
    """A gateway before one model server."""
    return await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))


def text(upstream, words="", *, index=0, finish=None, **more):
    choice = {"text": words, "index": index, "logprobs": None, "finish_reason": finish}
    return upstream.event({"id": "c", "object": "text_completion", "created": 1, "choices": [choice], **more})


def usage(upstream, prompt, completion):
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return upstream.event({"id": "c", "object": "text_completion", "choices": [], "usage": counts})


def whole(output=2, **more):
    return {
        "id": "c", "object": "text_completion", "created": 1, "model": "served-1",
        "choices": [{"text": "Hi there", "index": 0, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": output, "total_tokens": 3 + output}, **more,
    }  # fmt: skip


async def test_a_request_and_its_reply_go_through_as_the_bytes_they_came_in(mock, upstream):
    body = b'{ "max_tokens":7, "vendor": [1, 2.50],\n "model":"mock","prompt":"\\u0041", "echo":true,"suffix":"z" }'
    reply = b'{ "choices":[{"index":0,"text":"\\u00e9","finish_reason":"stop"}], "vendor": 1e2 ,"usage":null}'
    upstream.always(upstream.whole(reply))
    answer = await mock.ask(mock.request(body, path="/v1/completions"))
    assert answer.body == reply
    [request] = upstream.requests
    assert (request.line, request.body) == ("POST /v1/completions HTTP/1.1", body)


async def test_a_streams_bytes_go_through_and_its_tokens_are_timed(mock, upstream):
    odd = b'data: {"choices":[{"text":"x","index":0,"logprobs":{"tokens":["x"]}}],  "vendor":{"z":null}}\n\n'
    events = [odd, text(upstream, "y"), text(upstream, finish="stop"), usage(upstream, 10, 2), b"data: [DONE]\n\n"]
    upstream.always(upstream.streamed(*events))
    answer = await mock.complete(model="mock", stream=True, stream_options={"include_usage": True}, max_tokens=9)
    assert answer.body == b"".join(events)
    assert json.loads(upstream.requests[0].body)["max_tokens"] == 9
    [record] = mock.requests()
    assert (record.usage.input_tokens, record.usage.output_tokens, record.count_method) == (10, 2, "reported")
    assert (record.finish_reason, len(unpack_gaps(record.gaps)), record.api) == ("stop", 1, "completions")


async def test_usage_is_always_asked_for_and_shown_only_to_who_asked(mock, upstream):
    events = [text(upstream, "y"), text(upstream, finish="length"), usage(upstream, 10, 1), b"data: [DONE]\n\n"]
    upstream.always(upstream.streamed(*events))
    answer = await mock.complete(model="mock", stream=True)
    assert upstream.requests[0].json["stream_options"] == {"include_usage": True}
    assert b'"usage"' not in answer.body
    assert mock.requests()[0].usage.output_tokens == 1


async def test_usage_in_a_chunk_that_has_choices_counts_too(mock, upstream):
    counts = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    upstream.always(upstream.streamed(text(upstream, "y"), text(upstream, finish="stop", usage=counts)))
    await mock.complete(model="mock", stream=True)
    record = mock.requests()[0]
    assert (record.usage.input_tokens, record.usage.output_tokens) == (5, 1)


async def test_a_whole_replys_usage_is_read_with_its_details(mock, upstream):
    details = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 6}}
    upstream.always(upstream.whole(whole(usage=details)))
    await mock.complete(model="mock", prompt=["a", "b"], n=2)
    [record] = mock.requests()
    assert (record.usage.input_text, record.usage.cache_read_text, record.usage.output_text) == (3, 6, 4)
    assert (record.choices, record.model_version, record.finish_reason) == (4, "served-1", "stop")


async def test_usage_that_is_missing_is_estimated_and_marked(mock, upstream):
    upstream.always(upstream.streamed(text(upstream, "y"), text(upstream, "z"), text(upstream, finish="stop")))
    await mock.complete(model="mock", stream=True)
    [record] = mock.requests()
    assert (record.usage.output_tokens, record.count_method) == (2, "estimate")


@pytest.mark.parametrize(("given", "sent"), [({}, 16), ({"max_tokens": None}, 16), ({"max_tokens": 40}, 40)])
async def test_the_apis_default_is_told_so_that_every_server_keeps_it(mock, upstream, given, sent):
    upstream.always(upstream.whole(whole()))
    await mock.complete(model="mock", **given)
    assert upstream.requests[0].json["max_tokens"] == sent
    assert "max_completion_tokens" not in upstream.requests[0].json


async def test_the_field_of_a_limit_is_never_the_newer_one(start_gateway, kit, upstream):
    upstream.always(upstream.whole(whole()))
    target = kit.http_target(upstream.url, model="org/real")
    target["settings"]["output_limit_field"] = "max_completion_tokens"
    gateway = await start_gateway(kit.configuration(("mock", [target])))
    await gateway.complete(model="mock")
    assert upstream.requests[0].json == {"model": "org/real", "prompt": "one two three", "max_tokens": 16}


async def test_answers_that_best_of_leaves_out_are_reserved_for(start_gateway, kit, upstream):
    upstream.always(upstream.whole(whole(output=64)))
    limit = {"id": "out", "tenant": "acme", "level": "tenant", "metric": "output_tokens", "amount": 64,
             "window": "minute"}  # fmt: skip
    config = kit.configuration(("mock", [kit.http_target(upstream.url)]), limits=[limit])
    gateway = await start_gateway(config)
    assert (await gateway.complete(model="mock", best_of=4)).status == 200
    [record] = gateway.requests()
    assert (record.usage.output_tokens, record.overdraft_tokens) == (64, 0)
    assert (await gateway.complete(model="mock", max_tokens=1)).status == 429


async def test_a_limit_cuts_what_a_server_may_make(start_gateway, kit, upstream):
    upstream.always(upstream.streamed(text(upstream, "y"), text(upstream, finish="stop"), usage(upstream, 3, 1)))
    limit = {"id": "out", "tenant": "acme", "level": "tenant", "metric": "output_tokens", "amount": 40,
             "window": "minute"}  # fmt: skip
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)]), limits=[limit]))
    answer = await gateway.complete(model="mock", max_tokens=4000, stream=True)
    assert answer.headers["x-tollkeeper-max-tokens"] == "40"
    assert upstream.requests[0].json["max_tokens"] == 40


async def test_what_a_server_refuses_is_passed_on_with_its_words(mock, upstream):
    error = {"error": {"message": "suffix is not currently supported", "type": "invalid_request_error"}}
    upstream.always(upstream.whole(error, status=400))
    answer = await mock.complete(model="mock", suffix="!")
    assert answer.status == 400 and "suffix is not currently supported" in answer.error["message"]


@pytest.mark.parametrize("garbage", [b"not json", b'{"choices": 5}', b"{}", b'{"error": {"message": "no"}}'])
async def test_a_reply_that_is_no_completion_is_the_servers_fault(mock, upstream, garbage):
    upstream.always(upstream.whole(garbage))
    answer = await mock.complete(model="mock")
    assert answer.status == 502
    assert mock.requests()[0].outcome == "error"


async def test_the_sdk_reads_a_servers_answer(mock, upstream):
    upstream.always(upstream.whole(whole()))
    answer = await mock.sdk().completions.create(model="mock", prompt="x", max_tokens=3)
    assert (answer.choices[0].text, answer.usage.total_tokens) == ("Hi there", 5)
