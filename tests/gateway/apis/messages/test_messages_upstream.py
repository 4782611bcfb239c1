"""Messages answered by OpenAI-compatible servers: what these are sent, what becomes of their answers, what it costs."""

import json
from typing import Any

import anthropic
import pytest

MODEL = "m"
WEATHER: Any = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
KEEP: Any = {"type": "ephemeral"}
HOUR: Any = {"type": "ephemeral", "ttl": "1h"}
USD_PER_MTOK = {
    "input_text": "10",
    "cache_read_text": "1",
    "cache_write_5m": "12.5",
    "cache_write_1h": "20",
    "output_text": "50",
}


@pytest.fixture
def start(start_gateway, kit, upstream):
    """Start a gateway whose one model is at the upstream."""

    async def start(**settings):
        config = kit.configuration((MODEL, [kit.http_target(upstream.url) | {"settings": settings}]))
        config["prices"][0]["usd_per_mtok"] = USD_PER_MTOK
        return await start_gateway(config)

    return start


def request(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}], **fields}


def answer(
    upstream, message: dict[str, Any], finish: str = "stop", usage: dict[str, Any] | None = None, **more: Any
) -> bytes:
    body = upstream.completion(**({"usage": usage} if usage else {}))
    body["choices"] = [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **more}]
    return bytes(upstream.whole(body))


async def test_an_upstream_is_sent_a_chat_and_its_answer_comes_back_as_a_message(start, upstream, sdk):
    upstream.always(upstream.whole(upstream.completion("Hi there")))
    gateway = await start()
    message = await sdk(gateway).messages.create(**request(system="be brief", stop_sequences=["END"]))
    assert [block.text for block in message.content] == ["Hi there"]
    assert (message.usage.input_tokens, message.usage.output_tokens, message.stop_reason) == (3, 2, "end_turn")
    [sent] = upstream.requests
    assert sent.line == "POST /v1/chat/completions HTTP/1.1"
    assert sent.json == {
        "model": MODEL,
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
        "max_tokens": 100,
        "stop": ["END"],
    }
    [record] = gateway.requests()
    assert (record.count_method, record.model_version) == ("reported", "served-1")
    assert record.cost_pico_usd == 3 * 10_000_000 + 2 * 50_000_000


async def test_a_stream_of_chunks_becomes_one_of_events(start, upstream, sdk):
    role = upstream.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    upstream.always(
        upstream.streamed(
            role, upstream.chunk("Hi "), upstream.chunk("there"), upstream.chunk(finish="stop"), upstream.usage(3, 2)
        )
    )
    gateway = await start()
    async with sdk(gateway).messages.stream(**request()) as stream:
        events = [event.type async for event in stream]
        message = await stream.get_final_message()
    assert [name for name in events if name != "text"] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert message.content[0].text == "Hi there"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (3, 2)
    assert upstream.requests[0].json["stream_options"] == {"include_usage": True}


async def test_a_conversation_with_tools_goes_there_and_back(start, upstream, sdk):
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    upstream.then(answer(upstream, {"content": None, "tool_calls": [call]}, "tool_calls"))
    upstream.then(answer(upstream, {"content": "Rain."}))
    gateway = await start()
    first = await sdk(gateway).messages.create(**request(tools=[WEATHER], tool_choice={"type": "any"}))
    [use] = first.content
    assert use.type == "tool_use" and (use.id, use.name, use.input) == ("call_1", "weather", {"city": "Oslo"})
    assert first.stop_reason == "tool_use"
    result: Any = {"type": "tool_result", "tool_use_id": use.id, "content": "rain"}
    turns: Any = [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = await sdk(gateway).messages.create(**request(tools=[WEATHER], messages=turns))
    assert second.content[0].text == "Rain."
    sent = upstream.requests[1].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    assert [record.tool_calls for record in gateway.requests()] == [1, 0]


async def test_calls_in_a_stream_come_as_pieces_of_json(start, upstream, sdk):
    def piece(**function: str) -> bytes:
        call = {"index": 0, "function": function, **({"id": "call_1"} if "name" in function else {})}
        return bytes(upstream.event({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))

    upstream.always(
        upstream.streamed(
            upstream.event({"choices": [{"index": 0, "delta": {"reasoning_content": "Oslo, then."}}]}),
            piece(name="weather", arguments=""),
            piece(arguments='{"city":'),
            piece(arguments='"Oslo"}'),
            upstream.chunk(finish="tool_calls"),
            upstream.usage(3, 9, completion_tokens_details={"reasoning_tokens": 4}),
        )
    )
    gateway = await start()
    thinking: Any = {"type": "adaptive"}
    async with sdk(gateway).messages.stream(**request(tools=[WEATHER], thinking=thinking)) as stream:
        message = await stream.get_final_message()
    thought, use = message.content
    assert thought.type == "thinking" and thought.thinking == "Oslo, then."
    assert use.type == "tool_use" and use.input == {"city": "Oslo"}
    details = message.usage.output_tokens_details
    assert message.stop_reason == "tool_use" and details is not None and details.thinking_tokens == 4
    [record] = gateway.requests()
    assert (record.tool_calls, record.usage.output_reasoning, record.usage.output_text) == (1, 4, 5)


async def test_structured_output_is_asked_for_and_parsed_by_the_sdk(start, upstream, sdk):
    upstream.always(answer(upstream, {"content": '{"city": "Oslo"}'}))
    gateway = await start()
    schema: Any = {"type": "json_schema", "schema": {"type": "object"}}
    message = await sdk(gateway).messages.create(**request(output_config={"format": schema}))
    assert json.loads(message.content[0].text) == {"city": "Oslo"}
    sent = upstream.requests[0].json["response_format"]
    assert sent["json_schema"]["schema"] == {"type": "object"}
    assert gateway.requests()[0].schema_failed is False


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_stop_sequence_is_named_where_the_server_names_it(start, upstream, sdk, is_streamed):
    if is_streamed:
        end = {"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END"}
        upstream.always(
            upstream.streamed(upstream.chunk("a"), upstream.event({"choices": [end]}), upstream.usage(3, 2))
        )
    else:
        upstream.always(answer(upstream, {"content": "a"}, stop_reason="END"))
    gateway = await start()
    fields = request(stop_sequences=["END"])
    if is_streamed:
        async with sdk(gateway).messages.stream(**fields) as stream:
            message = await stream.get_final_message()
    else:
        message = await sdk(gateway).messages.create(**fields)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")


# The prompt cache.

CACHED = {
    "prompt_tokens": 5110,
    "completion_tokens": 2,
    "total_tokens": 5112,
    "prompt_tokens_details": {
        "cached_tokens": 4000,
        "cache_creation_tokens": 1100,
        "cache_creation_token_details": {"ephemeral_5m_input_tokens": 1000, "ephemeral_1h_input_tokens": 100},
    },
    "cache_read_input_tokens": 4000,
    "cache_creation_input_tokens": 1100,
}


async def test_what_the_cache_keeps_is_passed_on_counted_and_priced(start, upstream, sdk):
    upstream.always(answer(upstream, {"content": "a"}, usage=CACHED))
    gateway = await start(sends_cache_control=True)
    system: Any = [{"type": "text", "text": "long", "cache_control": HOUR}]
    content: Any = [{"type": "text", "text": "hello", "cache_control": KEEP}]
    message = await sdk(gateway).messages.create(
        **request(
            system=system, messages=[{"role": "user", "content": content}], tools=[WEATHER | {"cache_control": KEEP}]
        )
    )
    sent = upstream.requests[0].json
    assert [one["content"][0]["cache_control"] for one in sent["messages"]] == [HOUR, KEEP]
    assert sent["tools"][0]["cache_control"] == KEEP
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (10, 4000, 1100)
    assert usage.cache_creation is not None
    kept = (usage.cache_creation.ephemeral_5m_input_tokens, usage.cache_creation.ephemeral_1h_input_tokens)
    assert kept == (1000, 100)
    [record] = gateway.requests()
    assert (record.usage.cache_write_5m, record.usage.cache_write_1h, record.usage.cache_read_text) == (1000, 100, 4000)
    pico_usd = 10 * 10_000_000 + 4000 * 1_000_000 + 1000 * 12_500_000 + 100 * 20_000_000 + 2 * 50_000_000
    assert record.cost_pico_usd == pico_usd


async def test_what_the_cache_keeps_is_reported_at_the_end_of_a_stream_too(start, upstream, sdk):
    usage = upstream.event({"choices": [], "usage": CACHED})
    upstream.always(upstream.streamed(upstream.chunk("a"), upstream.chunk(finish="stop"), usage))
    gateway = await start(sends_cache_control=True)
    async with sdk(gateway).messages.stream(**request(cache_control=KEEP)) as stream:
        message = await stream.get_final_message()
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (10, 4000)
    assert upstream.requests[0].json["messages"][0]["content"][0]["cache_control"] == KEEP


async def test_a_plain_server_is_told_nothing_of_a_cache(start, upstream, sdk):
    upstream.always(upstream.whole(upstream.completion()))
    gateway = await start()
    await sdk(gateway).messages.create(**request(cache_control=KEEP, system=[{"type": "text", "text": "a"}]))
    assert b"cache_control" not in upstream.requests[0].body


async def test_thoughts_go_back_to_a_server_that_takes_marks(start, upstream, sdk):
    upstream.always(upstream.whole(upstream.completion()))
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    turns: Any = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "c"},
    ]
    for settings, sent in (({"sends_cache_control": True}, [thought]), ({}, None)):
        await sdk(await start(**settings)).messages.create(**request(messages=turns))
        assert upstream.requests[-1].json["messages"][1].get("thinking_blocks") == sent


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_what_signs_a_thought_comes_back_to_who_must_hand_it_on(start, upstream, sdk, is_streamed):
    def delta(**fields: object) -> bytes:
        return bytes(upstream.event({"choices": [{"index": 0, "delta": fields}]}))

    signed = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
    if is_streamed:
        upstream.then(
            upstream.streamed(
                delta(
                    reasoning_content="hm", thinking_blocks=[{"type": "thinking", "thinking": "hm", "signature": ""}]
                ),
                delta(reasoning_content="", thinking_blocks=[{"type": "thinking", "thinking": "", "signature": "s"}]),
                upstream.chunk("a"),
                upstream.chunk(finish="stop"),
                upstream.usage(3, 2),
            )
        )
    else:
        upstream.then(answer(upstream, {"content": "a", "reasoning_content": "hm", "thinking_blocks": signed}))
    upstream.always(upstream.whole(upstream.completion()))
    gateway = await start(sends_cache_control=True)
    fields = request(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000)
    if is_streamed:
        async with sdk(gateway).messages.stream(**fields) as stream:
            message = await stream.get_final_message()
    else:
        message = await sdk(gateway).messages.create(**fields)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].signature == "s"
    fields["messages"] = [*fields["messages"], {"role": "assistant", "content": message.content}, *fields["messages"]]
    await sdk(gateway).messages.create(**fields | {"thinking": {"type": "disabled"}})
    assert upstream.requests[-1].json["messages"][1]["thinking_blocks"] == signed


async def test_reasoning_within_the_content_is_told_from_the_answer(start, upstream, sdk):
    """As Mistral's reasoning models put it."""
    content = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}]
    upstream.then(answer(upstream, {"content": content}))
    piece = upstream.event({"choices": [{"index": 0, "delta": {"content": content[:1]}}]})
    upstream.then(upstream.streamed(piece, upstream.chunk("a"), upstream.chunk(finish="stop"), upstream.usage(3, 2)))
    client = sdk(await start())
    fields = request(thinking={"type": "adaptive"})
    whole = await client.messages.create(**fields)
    async with client.messages.stream(**fields) as stream:
        streamed = await stream.get_final_message()
    for message in (whole, streamed):
        assert [(block.type, getattr(block, block.type)) for block in message.content] == [
            ("thinking", "hm"),
            ("text", "a"),
        ]


# What servers differ in.


async def test_the_limit_has_the_name_that_the_server_wants(start, upstream, sdk):
    upstream.always(upstream.whole(upstream.completion()))
    gateway = await start(output_limit_field="max_completion_tokens")
    await sdk(gateway).messages.create(**request())
    sent = upstream.requests[0].json
    assert sent["max_completion_tokens"] == 100 and "max_tokens" not in sent


async def test_an_effort_goes_only_to_a_server_that_takes_one(start, upstream, sdk):
    upstream.always(upstream.whole(upstream.completion()))
    thinking: Any = {"type": "enabled", "budget_tokens": 5000}
    for sends, effort in ((True, "medium"), (False, None)):
        gateway = await start(sends_reasoning_effort=sends)
        await sdk(gateway).messages.create(**request(thinking=thinking, max_tokens=6000))
        assert upstream.requests[-1].json.get("reasoning_effort") == effort


@pytest.mark.parametrize(
    ("status", "exception", "kind"),
    [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (401, anthropic.InternalServerError, "api_error"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
    ],
)
async def test_an_upstreams_refusal_is_an_error_of_this_api(start, upstream, sdk, status, exception, kind):
    upstream.always(upstream.whole({"error": {"message": "no"}}, status))
    gateway = await start()
    with pytest.raises(exception) as refused:
        await sdk(gateway).messages.create(**request())
    assert refused.value.type == kind


@pytest.mark.parametrize("body", [b"{}", b'{"choices": 3}', b'{"choices": [{"message": 3}]}', b"nonsense"])
async def test_an_answer_that_is_none_is_the_upstreams_fault(start, upstream, sdk, body):
    upstream.always(upstream.whole(body))
    gateway = await start()
    with pytest.raises(anthropic.InternalServerError) as broken:
        await sdk(gateway).messages.create(**request())
    assert broken.value.error_code == "upstream_broken"
    assert gateway.requests()[0].outcome == "error"


async def test_a_stream_that_ends_too_early_is_no_message(start, upstream, sdk):
    upstream.always(upstream.stream_head() + upstream.piece(upstream.chunk("Hi")) + upstream.END)
    gateway = await start()
    with pytest.raises(anthropic.APIStatusError) as broken:
        async with sdk(gateway).messages.stream(**request()) as stream:
            async for _ in stream:
                pass
    assert broken.value.type == "api_error"


async def test_the_next_target_answers_where_the_first_fails(start_gateway, kit, new_upstream, sdk):
    first, second = await new_upstream(), await new_upstream()
    first.always(first.whole({}, 500))
    second.always(second.streamed(second.chunk("Hi"), second.chunk(finish="stop"), second.usage(3, 1)))
    targets = [kit.http_target(first.url, "u1", weight=1000), kit.http_target(second.url, "u2", weight=1)]
    gateway = await start_gateway(kit.configuration((MODEL, targets)))
    for _ in range(2):
        async with sdk(gateway).messages.stream(**request()) as stream:
            assert await stream.get_final_text() == "Hi"
    assert second.requests[0].json["messages"] == [{"role": "user", "content": "hello"}]
