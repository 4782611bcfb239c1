"""Targets that speak Anthropic's Messages API: requests and answers pass through as they came."""

import json
from typing import Any

import anthropic
import pytest

from contracts.metering.usage import Usage
from tests.gateway.apis.native import provider

MODEL = "claude"
TEXT: Any = {"type": "text", "text": "one two three"}
# With blanks, an order of its own, and fields that the gateway does not know: all of it must arrive.
BODY = (
    b'{ "max_tokens" : 200,\n "model":"claude", "messages": [{"role":"user","content":[{"type":"text","text":"hi",'
    b'"cache_control":{"type":"ephemeral","scope":"new"}}]}], "context_management":{"edits":[{"type":'
    b'"clear_tool_uses_20250919"}]}, "tools":[{"type":"web_search_20250305","name":"web_search"}], "brand_new": 1e3 }'
)


@pytest.fixture
def start(start_gateway, kit, upstream):
    """Start a gateway whose model is at a server that speaks the Messages API."""

    async def start(more: Any = None, *others: Any, **fields: Any) -> Any:
        target = kit.http_target(upstream.url, **(more or {}))
        target["settings"] = {"apis": ["messages"], **target["settings"]}
        config = kit.configuration((MODEL, [target, *others]), **fields)
        config["prices"][0]["usd_per_mtok"] |= {
            "cache_read_text": "0.1",
            "cache_write_5m": "1.25",
            "cache_write_1h": "2",
        }
        return await start_gateway(config)

    return start


def post(kit, body: bytes, **headers: str) -> bytes:
    return bytes(
        kit.request(body, {name.replace("_", "-"): value for name, value in headers.items()}, path="/v1/messages")
    )


async def test_a_body_and_its_headers_arrive_byte_for_byte_and_so_does_the_answer(start, upstream, kit):
    whole = json.dumps(provider.message(TEXT, server_tool_use={"web_search_requests": 1}), indent=1).encode()
    upstream.always(upstream.whole(whole))
    gateway = await start()
    answer = await gateway.ask(
        post(kit, BODY, anthropic_beta="context-management-2025-06-27,new-2027", anthropic_version="2023-06-02")
    )
    assert (answer.status, answer.body) == (200, whole)
    [sent] = upstream.requests
    assert sent.body == BODY
    assert sent.line == "POST /v1/messages HTTP/1.1"
    assert sent.headers["anthropic-beta"] == "context-management-2025-06-27,new-2027"
    assert sent.headers["anthropic-version"] == "2023-06-02"
    [record] = gateway.requests()
    assert (record.api, record.outcome, record.count_method) == ("messages", "ok", "reported")
    assert record.usage == Usage(input_text=10, cache_read_text=100, cache_write_5m=3, cache_write_1h=2, output_text=7)
    # 10 at 1 USD per million, 100 at 0.1, 3 at 1.25, 2 at 2, 7 at 2
    assert record.cost_pico_usd == 10_000_000 + 10_000_000 + 3_750_000 + 4_000_000 + 14_000_000


async def test_an_agents_session_tools_prompt_and_the_providers_usage_are_on_the_record(start, upstream, kit):
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
    events = provider.message_events(TEXT, call, stop_reason="tool_use")
    whole = provider.message(TEXT, call, stop_reason="tool_use", server_tool_use={"web_search_requests": 1})
    upstream.then(upstream.streamed(*events))
    upstream.then(upstream.whole(whole))
    upstream.then(upstream.whole(whole))
    gateway = await start()
    headers = {"x_claude_code_session_id": "s1", "x_claude_code_agent_id": "sub", "x_tollkeeper_repo": "acme/shop"}
    await gateway.ask(post(kit, BODY.replace(b'{ "max', b'{ "stream":true, "max'), **headers))
    await gateway.ask(post(kit, BODY, **headers))
    await gateway.ask(post(kit, BODY))
    streamed, answered, outside = gateway.requests()
    for record in (streamed, answered):
        assert (record.conversation_id, record.who.tags) == ("s1", {"agent": "sub", "repo": "acme/shop"})
        assert (record.tools, record.tool_calls, len(record.tool_marks)) == (["Bash"], 1, 1)
        assert len(record.prompt_marks) == 3
        assert json.loads(record.provider_usage)["cache_creation"] == {
            "ephemeral_5m_input_tokens": 3,
            "ephemeral_1h_input_tokens": 2,
        }
    assert streamed.prompt_marks == answered.prompt_marks
    assert json.loads(streamed.provider_usage)["output_tokens"] == 7
    assert json.loads(answered.provider_usage)["server_tool_use"] == {"web_search_requests": 1}
    assert (outside.conversation_id, outside.prompt_marks) == ("", [])


@pytest.mark.parametrize("stated", [{"input_tokens": "ten"}, {"cache_creation": 5}, {"speed": {"fast": 1}}])
async def test_a_usage_that_cannot_be_read_is_kept_and_loses_no_answer(start, upstream, kit, stated):
    whole = json.dumps(provider.message(TEXT, **stated)).encode()
    upstream.always(upstream.whole(whole))
    gateway = await start()
    answer = await gateway.ask(post(kit, BODY))
    assert (answer.status, answer.body) == (200, whole)
    [record] = gateway.requests()
    assert (record.outcome, record.count_method) == ("ok", "estimate")
    assert json.loads(record.provider_usage).items() >= stated.items()


async def test_only_the_models_name_is_changed_where_the_provider_has_another(start, upstream, kit):
    upstream.always(upstream.whole(provider.message(TEXT)))
    gateway = await start({"model": "claude-sonnet-4-5"})
    assert (await gateway.ask(post(kit, BODY))).status == 200
    assert upstream.requests[0].body == BODY.replace(b'"claude"', b'"claude-sonnet-4-5"')
    assert upstream.requests[0].headers["anthropic-version"] == "2023-06-01"


async def test_a_stream_passes_event_by_event_and_its_end_comes_after_the_record(start, upstream, kit):
    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
    thought = {"type": "thinking", "thinking": "Hm so", "signature": "c2ln"}
    events = provider.message_events(thought, TEXT, call, stop_reason="tool_use")
    upstream.always(upstream.streamed(*events))
    gateway = await start()
    body = BODY.replace(b'{ "max', b'{ "stream":true, "max')
    answer = await gateway.ask(post(kit, body))
    assert answer.body == b"".join(events)
    [record] = gateway.requests()
    assert record.usage == Usage(input_text=10, cache_read_text=100, cache_write_5m=3, cache_write_1h=2, output_text=7)
    assert (record.finish_reason, record.tool_calls) == ("tool_calls", 1)
    assert record.ttft_ns is not None


async def test_the_sdk_reads_streams_and_tool_calls(start, upstream, sdk):
    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
    upstream.always(upstream.streamed(*provider.message_events(TEXT, call, stop_reason="tool_use")))
    gateway = await start()
    async with sdk(gateway).messages.stream(
        model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "hello"}]
    ) as stream:
        message = await stream.get_final_message()
    assert message.id == provider.MESSAGE_ID
    assert (message.content[0].text, message.content[1].input) == ("one two three", {"city": "Oslo"})


async def test_the_key_is_sent_as_anthropic_takes_it(start, upstream, kit, monkeypatch):
    monkeypatch.setenv("CLAUDE_API_KEY", "sk-ant-1")
    upstream.always(upstream.whole(provider.message(TEXT)))
    gateway = await start({"key": "env:CLAUDE_API_KEY"})
    assert (await gateway.ask(post(kit, BODY))).status == 200
    assert upstream.requests[0].headers["x-api-key"] == "sk-ant-1"
    assert "authorization" not in upstream.requests[0].headers


@pytest.mark.parametrize(
    ("status", "kind", "code", "shown"),
    [
        (400, "invalid_request_error", 400, "invalid_request_error"),
        (413, "request_too_large", 400, "request_too_large"),
        (429, "rate_limit_error", 429, "rate_limit_error"),
        (529, "overloaded_error", 529, "overloaded_error"),
        (500, "api_error", 502, "api_error"),
        (401, "authentication_error", 502, "api_error"),
    ],
)
async def test_errors_keep_the_providers_type_and_name_no_deployment(start, upstream, kit, status, kind, code, shown):
    said = f"prompt is too long for claude-eu-4 at {upstream.url}/messages"
    error = {"type": "error", "error": {"type": kind, "message": said}, "request_id": "req_1"}
    upstream.always(upstream.whole(error, status))
    gateway = await start({"model": "claude-eu-4"})
    answer = await gateway.ask(post(kit, BODY))
    assert (answer.status, answer.json["type"], answer.json["error"]["type"]) == (code, "error", shown)
    assert "claude-eu-4" not in answer.body.decode() and "127.0.0.1" not in answer.body.decode()
    if status == 400:
        assert "prompt is too long" in answer.json["error"]["message"]


async def test_an_error_in_a_stream_ends_it_in_the_apis_shape(start, upstream, kit):
    events = provider.message_events(TEXT)[:4]
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    upstream.always(upstream.streamed(*events, provider.event(overloaded)))
    gateway = await start()
    answer = await gateway.ask(post(kit, BODY.replace(b'{ "max', b'{ "stream":true, "max')))
    passed, _, end = answer.body.rpartition(b"event: error\n")
    assert passed == b"".join(events)
    assert json.loads(end.partition(b"data: ")[2])["error"]["type"] == "overloaded_error"
    assert gateway.requests()[0].outcome == "error"


async def test_a_request_that_no_chat_can_carry_goes_to_the_target_that_can_take_it(start, upstream, kit):
    upstream.always(upstream.whole(provider.message(TEXT)))
    gateway = await start(None, kit.scripted(weight=100))
    for _ in range(4):
        assert (await gateway.ask(post(kit, BODY))).status == 200
    assert [request.body for request in upstream.requests] == [BODY] * 4


async def test_a_pool_with_both_kinds_answers_plain_requests_by_either(start, upstream, kit):
    upstream.always(upstream.whole(provider.message(TEXT)))
    gateway = await start(None, kit.scripted())
    body = json.dumps({"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "a b"}]}).encode()
    answers = [(await gateway.ask(post(kit, body))).json for _ in range(4)]
    texts = sorted(answer["content"][0]["text"] for answer in answers)
    assert texts[0].startswith("Hello!") and texts[:2] != texts[2:] == ["one two three"] * 2
    assert len(upstream.requests) == 2 and upstream.requests[0].body == body


async def test_a_chat_for_targets_of_another_api_is_refused_with_the_remedy(start, kit, upstream):
    gateway = await start()
    answer = await gateway.chat(model=MODEL)
    assert (answer.status, answer.error["code"]) == (400, "unsupported_parameter")
    assert "messages" in answer.error["message"]
    assert upstream.requests == []


async def test_a_limit_clips_max_tokens_and_nothing_else(start, upstream, kit):
    upstream.always(upstream.whole(provider.message(TEXT)))
    limits = [{"id": "l", "tenant": "acme", "level": "tenant", "metric": "tokens", "window": "day", "amount": 150}]
    gateway = await start(limits=limits)
    assert (await gateway.ask(post(kit, BODY))).status == 200
    sent = upstream.requests[0].json["max_tokens"]
    assert 0 < sent < 150
    assert upstream.requests[0].body == BODY.replace(b"200,", b"%d," % sent)


async def test_a_stream_beyond_max_tokens_is_cut_and_ends_as_a_message(start, upstream, sdk):
    long = {"type": "text", "text": " ".join(["word"] * 300)}
    upstream.always(upstream.streamed(*provider.message_events(long)))
    gateway = await start()
    async with sdk(gateway).messages.stream(
        model=MODEL, max_tokens=50, messages=[{"role": "user", "content": "hello"}]
    ) as stream:
        message = await stream.get_final_message()
    assert message.stop_reason == "max_tokens"
    assert len(message.content[0].text.split()) == 50
    assert message.id == provider.MESSAGE_ID


async def test_a_stream_cut_before_the_provider_counts_it_is_charged_for_what_was_delivered(start, upstream, kit):
    long = {"type": "text", "text": " ".join(["word"] * 300)}
    events = provider.message_events(long)  # its first event guesses that the output is one token
    upstream.always(upstream.stream_head(), *map(upstream.piece, events[:150]), upstream.STALL)
    gateway = await start()
    reply = await gateway.ask(post(kit, BODY.replace(b'{ "max', b'{ "stream":true, "max').replace(b"200,", b"50,")))
    assert reply.body.count(b"text_delta") == 50
    [record] = gateway.requests()
    assert (record.usage.input_text, record.usage.cache_read_text, record.finish_reason) == (10, 100, "length")
    assert 50 <= record.usage.output_tokens < 150  # what had arrived when the answer was cut
    assert record.count_method == "estimate"


async def test_a_guardrail_redacts_in_the_native_body_and_leaves_the_rest(start, upstream, kit):
    upstream.always(upstream.whole(provider.message({"type": "text", "text": "mail bob@example.com now"})))
    rules = [
        {
            "name": "pii",
            "tenants": ["acme"],
            "stages": [{"name": "mail", "detector": "pii", "direction": "both", "action": "redact"}],
        }
    ]
    gateway = await start(guardrails=rules)
    body = BODY.replace(b'"text":"hi"', b'"text":"I am ann@example.com"')
    answer = await gateway.ask(post(kit, body))
    sent = upstream.requests[0].json
    assert "ann@example.com" not in json.dumps(sent) and "I am [" in sent["messages"][0]["content"][0]["text"]
    assert sent["brand_new"] == 1000 and sent["tools"] == json.loads(BODY)["tools"]
    assert "bob@example.com" not in answer.body.decode()
    assert answer.json["id"] == provider.MESSAGE_ID and answer.json["usage"]["input_tokens"] == 10


async def test_what_is_wrong_with_a_request_is_said_before_the_provider_is_asked(start, upstream, kit):
    gateway = await start()
    for body, said in (
        (b'{"model":"claude","max_tokens":0,"messages":[]}', "max_tokens"),
        (b'{"model":"claude","messages":[', "JSON"),
        (b'{"model":"claude","max_tokens":9,"messages":[],"model":"other"}', "several fields named 'model'"),
    ):
        answer = await gateway.ask(post(kit, body))
        assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")
        assert said in answer.json["error"]["message"]
    assert upstream.requests == []


async def test_a_field_given_twice_reaches_the_provider_once(start, upstream, kit):
    upstream.always(upstream.whole(provider.message(TEXT)))
    gateway = await start()
    body = b'{"max_tokens":100000,"model":"claude","messages":[{"role":"user","content":"a"}],"max_tokens":5}'
    assert (await gateway.ask(post(kit, body))).status == 200
    assert upstream.requests[0].body.count(b"max_tokens") == 1
    assert upstream.requests[0].json["max_tokens"] == 5


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        (b'{"model":"claude","max_tokens":5,"messages":[]}', b'{"model":"up","max_tokens":5,"messages":[]}'),
        (b'{ "max_tokens":5 , "model" : "claude","messages":[]}', b'{ "max_tokens":5 , "model" : "up","messages":[]}'),
        (
            b'{"m\\u006fdel":"claude","max_tokens":5,"messages":[] }',
            b'{"m\\u006fdel":"up","max_tokens":5,"messages":[] }',
        ),
        (
            b'{"max_tokens":5,"x":"a,\\"model\\":","messages":[],"model":\n"claude"}',
            b'{"max_tokens":5,"x":"a,\\"model\\":","messages":[],"model":\n"up"}',
        ),
    ],
)
async def test_only_the_models_name_changes_however_the_body_is_written(start, upstream, kit, sent, arrives):
    upstream.always(upstream.whole(provider.message(TEXT)))
    gateway = await start({"model": "up"})
    assert (await gateway.ask(post(kit, sent))).status == 200
    assert upstream.requests[0].body == arrives


async def test_anthropics_sdk_raises_its_own_errors(start, upstream, sdk):
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}
    upstream.always(upstream.whole(error, 400))
    gateway = await start()
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        await sdk(gateway).messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "a"}])
