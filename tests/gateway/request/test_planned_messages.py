"""Plans of requests of Anthropic's API whose targets speak it: they are answered and recorded as by all stages."""

import json
import re
from typing import Any

import pytest

from tests.gateway.apis.native import provider
from tests.gateway.request.pair import counters, facts, told

TEXT: Any = {"type": "text", "text": "one two three"}
CALL: Any = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
THOUGHT: Any = {"type": "thinking", "thinking": "well now", "signature": "c2ln"}
TOOLS: Any = [{"name": "Bash", "input_schema": {"type": "object"}}]
SESSION = {
    "x-claude-code-session-id": "s1",
    "x-claude-code-agent-id": "sub",
    "anthropic-beta": "context-management-2025-06-27",
    "anthropic-version": "2023-06-02",
    "traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01",
}
ID = rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
TIMED = ("span_id", "gaps", "gap_clock", "ttft_ns", "admission_ns", "response_bytes")
SPOKEN = {"settings": {"apis": ["chat", "messages"]}}


def body(**fields: Any) -> bytes:
    asked = {"model": "mock", "max_tokens": 200, "messages": [{"role": "user", "content": "hi"}], **fields}
    return json.dumps(asked, separators=(",", ":")).encode()


@pytest.fixture
async def messages(pair, upstream, kit):
    """A pair whose targets speak both APIs, and what asks both the same."""

    async def start(*, pools=None, **more):
        target = kit.http_target(upstream.url, "u0", **{**SPOKEN, **more.pop("target", {})})
        pools = pools or [{"name": "mock", "policy": "round_robin", "targets": [target]}]
        both = await pair(pools=pools, **more)

        async def ask(data: bytes, **headers: str):
            asked = kit.request(data, headers, path="/v1/messages")
            short, long = [await each.ask(asked) for each in (both.short, both.long)]
            assert short.status == long.status and names(short) == names(long)
            assert short.status != 200 or re.sub(ID, b"", short.body) == re.sub(ID, b"", long.body)
            return short

        return both, ask

    return start


def names(answer):
    """Return an answer's headers, without ids and moments."""
    told_of = {name: value for name, value in told(answer).items() if name != "request-id" and "-reset" not in name}
    return told_of | {"resets": sorted(name for name in answer.headers if "-reset" in name)}


def compare(both):
    ours, theirs = (
        [{name: value for name, value in facts(one).items() if name not in TIMED} for one in each.requests()]
        for each in (both.short, both.long)
    )
    assert ours == theirs
    assert counters(both.short) == counters(both.long)
    for each in (both.short, both.long):
        assert each.gateway.admission.in_flight == each.gateway._dispatcher.open_grants == 0


@pytest.mark.parametrize("headers", [{}, SESSION], ids=["", "session"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("content", "reason", "fields"),
    [
        ([TEXT], "end_turn", {}),
        ([TEXT, CALL], "tool_use", {"tools": TOOLS}),
        ([THOUGHT, TEXT], "max_tokens", {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}),
        ([THOUGHT, TEXT], "end_turn", {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 1500}),
        ([TEXT], "end_turn", {"metadata": {"user_id": "ada"}, "temperature": 0.5, "new_field": {"a": [1, 2]}}),
    ],
    ids=["text", "tools", "thinking", "more thinking than tokens", "user"],
)
async def test_a_message_by_a_plan_is_accounted_for_alike(messages, upstream, headers, stream, content, reason, fields):
    both, ask = await messages()
    whole = upstream.whole(json.dumps(provider.message(*content, stop_reason=reason)).encode())
    upstream.always(upstream.streamed(*provider.message_events(*content, stop_reason=reason)) if stream else whole)
    for _ in range(3):
        assert (await ask(body(stream=stream, **fields), **headers)).status == 200
    assert both.taken == [True] * 3
    compare(both)
    sent = upstream.requests[-6:]
    assert len({one.body for one in sent}) == 1
    assert len({one.headers.get("anthropic-beta") for one in sent}) == 1
    record = both.short.requests()[-1]
    assert (record.api, record.usage.cache_read_text, record.cost_pico_usd) == (
        "messages",
        100,
        record.charged_pico_usd,
    )
    assert json.loads(record.provider_usage)["output_tokens"] == 7
    if fields.get("tools"):
        assert (record.tool_calls, record.tools) == (1, ["Bash"])
        assert len(record.prompt_marks) == (3 if headers else 0)


async def test_a_key_in_anthropics_header_has_a_plan_as_well(messages, upstream, kit):
    both, ask = await messages()
    upstream.always(upstream.whole(json.dumps(provider.message(TEXT)).encode()))
    for _ in range(2):
        await ask(body(), **{"Authorization": "", "x-api-key": kit.KEY})
    assert both.taken == [False, True]  # the first shows who it is
    assert (await ask(body(), **{"Authorization": "", "x-api-key": "tk-" + "x" * 43})).status == 401
    assert (await ask(body(), **{"Authorization": ""})).status == 401
    assert (await ask(body(), **{"Authorization": f"x-api-key {kit.KEY}"})).status == 401
    # What is not a key is not what the key beside it is known by.
    for blank in ("\xa0", "tk", "\x1f"):
        await ask(body(), **{"Authorization": "", "x-api-key": blank, "api-key": kit.KEY})
        assert (await ask(body(), **{"Authorization": "", "x-api-key": blank})).status in (400, 401)
    compare(both)


@pytest.mark.parametrize("name", ["mock", "claude-sonnet-4-5"])
@pytest.mark.parametrize(
    "sent",
    [
        b'{"model":"mock","max_tokens":9,"messages":[]}',
        b'{ "max_tokens":9, "model" : "mock",\n"messages":[] }',
        b'{"model":"mock","max_tokens":9,"max_tokens":8,"messages":[]}',
        b'{"model":"mock","max_tokens":9,"messages":[],"m\\u0061x_tokens":8}',
        b'{"model":"mock","max_tokens":9,"messages":[],"\xc3\xa9":"\\"model\\":\\"mock\\""}',
    ],
)
async def test_what_is_sent_is_what_the_gateway_has_read(messages, upstream, name, sent):
    both, ask = await messages(target={"model": name, **SPOKEN})
    upstream.always(upstream.whole(json.dumps(provider.message(TEXT)).encode()))
    assert (await ask(sent)).status == 200
    ours, theirs = [one.body for one in upstream.requests[-2:]]
    assert ours == theirs and json.loads(ours)["model"] == name
    assert json.loads(ours)["max_tokens"] == json.loads(sent)["max_tokens"] and ours.count(b"max_tokens") == 1
    assert (ours == sent) == (name == "mock" and b"8" not in sent)
    assert both.taken == [name == "mock"] or both.taken == [True]


@pytest.mark.parametrize(
    "sent",
    [
        b"{",
        b"[]",
        b'{"model":"mock"}',
        b'{"model":"mock","messages":[],"max_tokens":0}',
        b'{"model":"mock","messages":[],"max_tokens":"9"}',
        b'{"model":"mock","messages":[],"stream":1}',
        b'{"model":"mock","messages":[],"tools":{}}',
        b'{"model":"mock","messages":[],"metadata":"\\x"}',
        b'{"model":"mock","messages":[],"model":"other"}',
        b'{"model":"none","messages":[]}',
        b'{"model":"mock","messages":[],"service_tier":"priority","max_tokens":5}',
        b'{"model":"mock","messages":"\xff"}',
    ],
)
async def test_what_is_wrong_is_said_alike(messages, upstream, sent):
    both, ask = await messages()
    upstream.always(upstream.whole(json.dumps(provider.message(TEXT)).encode()))
    short = await ask(sent)
    assert both.taken == [False]
    assert short.status in (400, 403, 404)
    compare(both)


@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
async def test_what_a_provider_refuses_is_told_alike(messages, upstream, status):
    both, ask = await messages()
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "too much"}}
    upstream.always(upstream.whole(error, status=status))
    for stream in (False, True):
        await ask(body(stream=stream))
    compare(both)


async def test_a_message_that_breaks_off_is_charged_alike(messages, upstream):
    both, ask = await messages()
    upstream.always(upstream.streamed(*provider.message_events(TEXT)[:4]))
    await ask(body(stream=True))
    assert both.taken == [True]
    compare(both)


async def test_what_a_tenant_keeps_of_a_message_is_kept_alike(messages, upstream):
    both, ask = await messages(tenants=[{"id": "acme", "keeps_content": True, "audits_requests": True}])
    upstream.always(upstream.whole(json.dumps(provider.message(TEXT)).encode()))
    for _ in range(2):
        await ask(body())
    assert both.taken == [True] * 2
    compare(both)


async def test_a_model_of_which_one_target_speaks_only_chats_has_no_plan_for_messages(messages, upstream, kit):
    other = kit.http_target(upstream.url, "u1")
    spoken = kit.http_target(upstream.url, "u0", **SPOKEN)
    both, ask = await messages(pools=[{"name": "mock", "policy": "round_robin", "targets": [spoken, other]}])
    upstream.always(upstream.whole(json.dumps(provider.message(TEXT)).encode()))
    await ask(body())
    assert both.taken == [False]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "text"}},
    ],
)
async def test_a_chat_with_tools_or_json_goes_by_a_plan_and_is_accounted_for_alike(pair, upstream, stream, fields):
    both = await pair()
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    if stream:
        events = [upstream.chunk("{"), upstream.chunk(finish="tool_calls")]
        if "tools" in fields:
            piece = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
            events.insert(1, upstream.event(piece))
        upstream.always(upstream.streamed(*events, upstream.usage(17, 9), upstream.event(b"[DONE]")))
    else:
        answer: Any = upstream.completion("{", prompt=17, output=9)
        if "tools" in fields:
            answer["choices"][0]["message"]["tool_calls"] = [call]
        upstream.always(upstream.whole(answer))
    for _ in range(2):
        await both.ask(stream=stream, headers={"x-tollkeeper-conversation-id": "talk"}, **fields)
    assert both.taken == [True] * 2
    compare(both)
    record = both.short.requests()[-1]
    assert record.tool_calls == (1 if "tools" in fields else None)
    assert len(record.prompt_marks) == (3 if "tools" in fields else 0)
    if not stream:
        assert record.schema_failed == (True if fields.get("response_format") == {"type": "json_object"} else None)
