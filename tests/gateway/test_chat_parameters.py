"""Chat parameters through a server over HTTP, with the SDK: choices, logprobs, legacy functions, stores, streams."""

import json

import pytest

FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CALL = {"name": "weather", "arguments": '{"city": "Ulm"}'}
USER = [{"role": "user", "content": "What is the weather?"}]


@pytest.fixture
async def server(start_gateway, kit, upstream):
    return await start_gateway(kit.configuration(("m", [kit.http_target(upstream.url)])))


def create(server, **fields):
    return server.sdk().chat.completions.create(**{"model": "m", "messages": USER, **fields})


async def test_functions_of_old_go_there_and_come_back(server, upstream):
    message = {"role": "assistant", "content": None, "function_call": CALL}
    choice = {"index": 0, "message": message, "finish_reason": "function_call"}
    upstream.always(upstream.whole({**upstream.completion(), "choices": [choice]}))
    answer = await create(server, functions=[FUNCTION], function_call={"name": "weather"})
    assert answer.choices[0].message.function_call.arguments == CALL["arguments"]
    sent = upstream.requests[0].json
    assert (sent["functions"], sent["function_call"]) == ([FUNCTION], {"name": "weather"})
    result = {"role": "function", "name": "weather", "content": "sunny"}
    await create(server, functions=[FUNCTION], messages=[*USER, message, result])
    assert upstream.requests[1].json["messages"][1:] == [message, result]
    assert server.requests()[0].finish_reason == "function_call"


async def test_functions_of_old_stream_and_count(server, upstream):
    def piece(**call):
        delta = {"function_call": call}
        return upstream.event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    end = upstream.chunk(finish="function_call")
    events = [piece(name="weather", arguments=""), piece(arguments='{"city"'), piece(arguments=': "Ulm"}'), end]
    upstream.always(upstream.streamed(*events, upstream.usage(9, 3), upstream.event(b"[DONE]")))
    stream = await create(server, functions=[FUNCTION], stream=True)
    calls = [chunk.choices[0].delta.function_call async for chunk in stream]
    assert "".join(call.arguments for call in calls if call) == CALL["arguments"]
    [record] = server.requests()
    assert (record.usage.output_tokens, record.finish_reason) == (3, "function_call")


async def test_choices_and_log_probabilities_pass_streamed_and_whole(server, upstream):
    logprobs = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}], "refusal": None}
    message = {"role": "assistant", "content": "a"}
    choices = [{"index": n, "message": message, "logprobs": logprobs, "finish_reason": "stop"} for n in range(2)]
    upstream.then(upstream.whole({**upstream.completion(), "choices": choices}))
    whole = await create(server, n=2, logprobs=True, top_logprobs=0)
    assert [choice.logprobs.content[0].logprob for choice in whole.choices] == [-0.5, -0.5]
    pieces = [
        upstream.event({"choices": [{"index": n, "delta": {"content": "a"}, "logprobs": logprobs}]}) for n in (0, 1)
    ]
    ends = [upstream.chunk(finish="stop", index=n) for n in (0, 1)]
    upstream.then(upstream.streamed(*pieces, *ends, upstream.usage(3, 2), upstream.event(b"[DONE]")))
    chunks = [chunk async for chunk in await create(server, n=2, logprobs=True, stream=True)]
    assert [chunk.choices[0].index for chunk in chunks] == [0, 1, 0, 1]
    assert chunks[0].choices[0].logprobs.content[0].token == "a"
    assert [record.choices for record in server.requests()] == [2, 2]


async def test_options_of_a_stream_reach_the_server_beside_ours(server, upstream):
    upstream.always(upstream.streamed(upstream.chunk("a", finish="stop"), upstream.usage(3, 1)))
    await (await create(server, stream=True, stream_options={"include_obfuscation": False})).close()
    assert upstream.requests[0].json["stream_options"] == {"include_obfuscation": False, "include_usage": True}


async def test_what_a_provider_is_to_keep_and_note_is_forwarded_as_it_came(server, upstream):
    upstream.always(upstream.whole({**upstream.completion(), "service_tier": "flex", "metadata": {"a": "b"}}))
    body = json.dumps(
        {
            "model": "m",
            "messages": USER,
            "store": True,
            "metadata": {"a": "b"},
            "service_tier": "flex",
            "prompt_cache_key": "k",
            "safety_identifier": "s",
            "verbosity": "low",
            "modalities": ["text", "audio"],
            "audio": {"voice": "alloy", "format": "wav"},
            "prediction": {"type": "content", "content": "x"},
            "web_search_options": {"search_context_size": "low"},
            "reasoning_effort": "max",
        }
    ).encode()
    answer = await server.chat(body)
    assert (answer.status, upstream.requests[0].body) == (200, body)
    assert answer.json["service_tier"] == "flex"


async def test_stored_chats_are_not_offered_to_be_read(server):
    head = b"Host: g\r\nAuthorization: Bearer " + b"tk-" + b"A" * 43 + b"\r\n\r\n"
    listed = await server.ask(b"GET /v1/chat/completions HTTP/1.1\r\n" + head)
    assert (listed.status, listed.headers["allow"]) == (405, "post")
    one = await server.ask(b"GET /v1/chat/completions/chatcmpl-1 HTTP/1.1\r\n" + head)
    assert one.status == 404
