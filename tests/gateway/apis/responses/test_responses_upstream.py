"""Responses of an OpenAI-compatible server's chats: what it sends, in whichever way, is told in the Responses API's."""

import json

import openai
import pytest

MODEL = "mock"
TOOLS = [{"type": "function", "name": "sum", "parameters": {"type": "object"}, "strict": True}]


@pytest.fixture
async def gateway(start_gateway, kit, upstream):
    return await start_gateway(kit.configuration((MODEL, [kit.http_target(upstream.url)])))


def ask(gateway, **fields):
    return gateway.sdk().responses.create(**{"model": MODEL, "input": "one", "store": False, **fields})


async def streamed(gateway, **fields):
    events = [event async for event in await ask(gateway, stream=True, **fields)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events


def choice(upstream, delta, finish=None, **more):
    return upstream.event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]})


def kinds(events):
    return [event.type.removeprefix("response.") for event in events]


def calls(*pieces):
    return {"tool_calls": [{"index": 0, **piece} for piece in pieces]}


async def test_the_server_is_asked_for_a_chat(gateway, upstream):
    upstream.then(upstream.whole(upstream.completion()))
    response = await ask(gateway, instructions="be brief", max_output_tokens=7, metadata={"a": "b"})
    [request] = upstream.requests
    assert request.line.startswith("POST /v1/chat/completions ")
    assert request.json == {
        "model": MODEL,
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one"}],
        "max_tokens": 7,
    }
    assert response.output_text == "Hi there" and response.usage.total_tokens == 5


async def test_usage_is_asked_for_and_told_in_detail(gateway, upstream):
    details = {
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    chunks = (upstream.chunk("Hi"), upstream.chunk(finish="stop"), upstream.usage(10, 5, **details))
    upstream.then(upstream.streamed(*chunks))
    usage = (await streamed(gateway))[-1].response.usage
    assert upstream.requests[0].json["stream_options"] == {"include_usage": True}
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (10, 5, 15)
    assert usage.input_tokens_details.cached_tokens == 4 and usage.output_tokens_details.reasoning_tokens == 3
    [record] = gateway.requests()
    assert record.usage.cache_read_text == 4 and record.usage.output_reasoning == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_billed_as_the_equal_chat(gateway, upstream, stream):
    details = {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 3}}
    if stream:
        chunks = (upstream.chunk("Hi"), upstream.chunk(finish="stop"), upstream.usage(10, 5, **details))
        upstream.always(upstream.streamed(*chunks))
    else:
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **details}
        upstream.always(upstream.whole({**upstream.completion(), "usage": usage}))
    messages = [{"role": "user", "content": "one"}]
    chat = await gateway.sdk().chat.completions.create(model=MODEL, messages=messages, stream=stream)
    response = await ask(gateway, stream=stream)
    for answer in (chat, response) if stream else ():
        async for _ in answer:
            pass
    of_chat, of_response = gateway.requests()
    for name in ("usage", "cost_pico_usd", "price_version", "count_method", "finish_reason", "outcome", "model"):
        assert getattr(of_chat, name) == getattr(of_response, name), name
    assert of_response.usage.cache_read_text == 4 and of_response.usage.output_reasoning == 3


async def test_usage_that_is_not_reported_is_estimated_and_never_zero(gateway, upstream):
    upstream.then(upstream.whole({**upstream.completion(), "usage": None}))
    usage = (await ask(gateway)).usage
    assert usage.input_tokens > 0 and usage.output_tokens > 0
    assert gateway.requests()[-1].count_method == "estimate"


async def test_parallel_calls_are_told_apart_also_where_their_pieces_are_interleaved(gateway, upstream):
    first = {"id": "call_1", "type": "function", "function": {"name": "sum", "arguments": ""}}
    second = {"id": "call_2", "type": "function", "index": 1, "function": {"name": "sum", "arguments": '{"b"'}}
    pieces = [
        choice(upstream, {"content": "Let me see."}),
        choice(upstream, calls(first)),
        choice(upstream, calls({"function": {"arguments": '{"a":'}}, second)),
        choice(upstream, calls({"function": {"arguments": "1}"}}, {"index": 1, "function": {"arguments": ":2}"}})),
        choice(upstream, {}, "tool_calls"),
        upstream.usage(3, 9),
    ]
    upstream.then(upstream.streamed(*pieces))
    events = await streamed(gateway, tools=TOOLS)
    response = events[-1].response
    assert response.status == "completed" and response.output_text == "Let me see."
    message, *found = response.output
    assert [(item.call_id, item.name, item.arguments) for item in found] == [
        ("call_1", "sum", '{"a":1}'),
        ("call_2", "sum", '{"b":2}'),
    ]
    for item in found:
        deltas = [
            event.delta
            for event in events
            if event.type == "response.function_call_arguments.delta" and event.item_id == item.id
        ]
        assert "".join(deltas) == item.arguments
    done = [event for event in events if event.type == "response.output_item.done"]
    assert [event.item for event in done] == response.output and message.type == "message"
    assert gateway.requests()[-1].tool_calls == 2


async def test_calls_of_servers_that_give_no_places_or_ids_are_kept_apart(gateway, upstream):
    without_places = [
        {"id": "a", "function": {"name": "sum", "arguments": "{}"}},
        {"id": "b", "function": {"name": "sum", "arguments": "{}"}},
    ]
    upstream.then(
        upstream.streamed(
            *(choice(upstream, {"tool_calls": [call]}) for call in without_places), choice(upstream, {}, "stop")
        )
    )
    assert [item.call_id for item in (await streamed(gateway, tools=TOOLS))[-1].response.output] == ["a", "b"]
    nameless = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "sum", "arguments": "{}"}}]}
    body = {**upstream.completion(), "choices": [{"index": 0, "message": nameless, "finish_reason": "tool_calls"}]}
    upstream.then(upstream.whole(body))
    [call] = (await ask(gateway, tools=TOOLS)).output
    assert call.call_id.startswith("call_") and call.name == "sum"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_is_an_item_of_its_own(gateway, upstream, field, stream):
    if stream:
        pieces = [
            choice(upstream, {field: "Hm"}),
            choice(upstream, {field: "m."}),
            choice(upstream, {"content": "Yes."}),
        ]
        upstream.then(upstream.streamed(*pieces, choice(upstream, {}, "stop")))
        response = (await streamed(gateway))[-1].response
    else:
        message = {"role": "assistant", "content": "Yes.", field: "Hmm."}
        upstream.then(upstream.whole({**upstream.completion(), "choices": [{"index": 0, "message": message}]}))
        response = await ask(gateway)
    reasoning, message = response.output
    assert reasoning.content[0].text == "Hmm." and reasoning.summary == [] and response.output_text == "Yes."


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_told_as_one(gateway, upstream, stream):
    if stream:
        upstream.then(
            upstream.streamed(
                choice(upstream, {"refusal": "I can"}),
                choice(upstream, {"refusal": "not."}),
                choice(upstream, {}, "stop"),
            )
        )
        events = await streamed(gateway)
        assert kinds(events).count("refusal.delta") == 2 and "refusal.done" in kinds(events)
        response = events[-1].response
    else:
        message = {"role": "assistant", "content": None, "refusal": "I cannot."}
        upstream.then(upstream.whole({**upstream.completion(), "choices": [{"index": 0, "message": message}]}))
        response = await ask(gateway)
    [part] = response.output[0].content
    assert part.type == "refusal" and part.refusal == "I cannot." and response.output_text == ""


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_come_where_they_are_asked_for(gateway, upstream, stream):
    token = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": [{"token": "Ho", "logprob": -1.5}]}
    logprobs = {"content": [token], "refusal": None}
    if stream:
        upstream.then(
            upstream.streamed(choice(upstream, {"content": "Hi"}, logprobs=logprobs), choice(upstream, {}, "stop"))
        )
    else:
        message = {"role": "assistant", "content": "Hi"}
        given = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}
        upstream.then(upstream.whole({**upstream.completion(), "choices": [given]}))
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
    if stream:
        events = await streamed(gateway, **fields)
        [delta] = [event for event in events if event.type == "response.output_text.delta"]
        assert delta.logprobs[0].token == "Hi" and delta.logprobs[0].top_logprobs[0].token == "Ho"
        response = events[-1].response
    else:
        response = await ask(gateway, **fields)
    [found] = response.output[0].content[0].logprobs
    assert (found.token, found.logprob, found.bytes) == ("Hi", -0.5, [72, 105])
    assert found.top_logprobs[0].logprob == -1.5
    assert upstream.requests[0].json["logprobs"] is True and upstream.requests[0].json["top_logprobs"] == 1


@pytest.mark.parametrize(
    ("reason", "status", "why"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_why_the_model_stopped_is_told(gateway, upstream, reason, status, why, stream):
    if stream:
        upstream.then(upstream.streamed(upstream.chunk("Hi"), upstream.chunk(finish=reason), upstream.usage(3, 1)))
        events = await streamed(gateway)
        assert events[-1].type == f"response.{status}"
        response = events[-1].response
    else:
        message = {"role": "assistant", "content": "Hi"}
        given = {"index": 0, "message": message, "finish_reason": reason}
        upstream.then(upstream.whole({**upstream.completion(), "choices": [given]}))
        response = await ask(gateway)
    assert response.status == status and response.output[0].status == status
    assert (response.incomplete_details.reason if response.incomplete_details else None) == why


async def test_an_answer_without_a_word_is_complete(gateway, upstream):
    upstream.then(upstream.streamed(upstream.chunk(finish="stop"), upstream.usage(3, 0)))
    events = await streamed(gateway)
    assert kinds(events) == ["created", "in_progress", "completed"] and events[-1].response.output == []


async def test_another_server_answers_when_the_first_fails(start_gateway, kit, new_upstream):
    first, second = await new_upstream(), await new_upstream()
    first.always(first.whole({"error": {"message": "down"}}, 500))
    second.always(second.streamed(second.chunk("Hi"), second.chunk(finish="stop"), second.usage(3, 1)))
    targets = [kit.http_target(first.url, "u1"), kit.http_target(second.url, "u2")]
    gateway = await start_gateway(kit.configuration((MODEL, targets)))
    for _ in range(2):
        events = await streamed(gateway)
        assert events[-1].response.output_text == "Hi" and kinds(events).count("created") == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"nonsense", "upstream_broken"),
        (b'{"choices": "x"}', "upstream_broken"),
        (json.dumps({"error": {"message": "overloaded"}}).encode(), "upstream_broken"),
    ],
)
async def test_garbage_from_a_server_is_an_error_with_a_status(gateway, upstream, body, code):
    upstream.then(upstream.whole(body))
    with pytest.raises(openai.InternalServerError) as error:
        await ask(gateway)
    assert error.value.status_code == 502 and error.value.code == code


async def test_a_stream_that_breaks_off_ends_with_response_failed(gateway, upstream):
    upstream.then(upstream.stream_head(), upstream.piece(upstream.chunk("Hi")), upstream.CLOSE)
    failed = (await streamed(gateway))[-1]
    assert failed.type == "response.failed" and failed.response.error.code == "server_error"
    assert failed.response.output[0].content[0].text == "Hi"
    assert gateway.requests()[-1].outcome == "error"


async def test_what_a_server_refuses_is_told_in_our_words(gateway, upstream):
    upstream.then(upstream.whole({"error": {"message": "no such tool"}}, 400))
    with pytest.raises(openai.BadRequestError, match="no such tool"):
        await ask(gateway)


async def test_a_limit_of_the_model_is_told_in_the_apis_words(start_gateway, kit, upstream):
    config = kit.configuration((MODEL, [kit.http_target(upstream.url)]))
    config["models"][0]["context_tokens"] = 100
    gateway = await start_gateway(config)
    with pytest.raises(openai.BadRequestError, match="max_output_tokens is 101; the context") as error:
        await ask(gateway, max_output_tokens=101)
    assert error.value.param == "max_output_tokens"


async def test_a_chats_field_is_named_as_it_was_sent(gateway):
    with pytest.raises(openai.BadRequestError, match="'max_tokens'; in the Responses API it is max_output") as error:
        await ask(gateway, extra_body={"max_tokens": 5})
    assert error.value.param == "max_tokens"


async def test_a_client_that_leaves_stops_the_server_and_keeps_nothing(gateway, upstream, eventually):
    upstream.then(upstream.stream_head(), upstream.piece(upstream.chunk("Hi")), upstream.STALL)
    stream = await ask(gateway, stream=True, store=True)
    async for event in stream:
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    await eventually(lambda: not upstream.open)
    await eventually(gateway.requests)
    assert gateway.requests()[-1].outcome == "cancelled" and not gateway.gateway.kept.is_open


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_of_a_namespaces_function_names_both(gateway, upstream, stream):
    function = {"name": "agents__stop", "arguments": "{}"}
    if stream:
        upstream.then(
            upstream.streamed(
                choice(upstream, calls({"id": "c", "function": function})), choice(upstream, {}, "tool_calls")
            )
        )
    else:
        message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}]}
        body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
        upstream.then(upstream.whole({**upstream.completion(), **body}))
    stop = {"type": "function", "name": "stop", "parameters": {"type": "object"}}
    space = {"type": "namespace", "name": "agents", "description": "d", "tools": [stop]}
    if stream:
        events = await streamed(gateway, tools=[space])
        response = events[-1].response
        added = next(event.item for event in events if event.type == "response.output_item.added")
        assert (added.name, added.namespace) == ("stop", "agents")
    else:
        response = await ask(gateway, tools=[space])
    [call] = response.output
    assert (call.type, call.name, call.namespace) == ("function_call", "stop", "agents")
    assert response.tools[0].type == "namespace" and response.tools[0].tools[0].name == "stop"
    assert upstream.requests[0].json["tools"][0]["function"]["name"] == "agents__stop"
