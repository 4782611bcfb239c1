"""Targets that speak OpenAI's Responses API: requests and answers pass through as they came."""

import json
from typing import Any

import openai
import pytest

from contracts.metering.usage import Usage
from tests.gateway.apis.native import provider

MODEL = "gpt"
# What Codex sends beside its prompt, a hosted tool, and a field that the gateway does not know.
BODY = (
    b'{"model":"gpt","instructions":"You are Codex","input":[{"type":"message","role":"user","content":[{"type":'
    b'"input_text","text":"hi"}]},{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}],"tools":[{"type":'
    b'"web_search","external_web_access":true},{"type":"custom","name":"apply_patch","format":{"type":"text"}}],'
    b'"store":false, "stream":true,"include":["reasoning.encrypted_content"],"client_metadata":{"a":"b"},"new":[1]}'
)


@pytest.fixture
def start(start_gateway, kit, upstream):
    """Start a gateway whose model is at a server that speaks the Responses API, and chats too."""

    async def start(more: Any = None, *others: Any, apis: Any = ("chat", "responses"), **fields: Any) -> Any:
        target = kit.http_target(upstream.url, **(more or {}))
        target["settings"] = {"apis": list(apis), **target["settings"]}
        return await start_gateway(kit.configuration((MODEL, [target, *others]), **fields))

    return start


def post(kit, body: bytes, **headers: str) -> bytes:
    return bytes(
        kit.request(body, {name.replace("_", "-"): value for name, value in headers.items()}, path="/v1/responses")
    )


async def test_a_stream_passes_byte_for_byte_both_ways(start, upstream, kit):
    events = provider.response_events(provider.said("one two three"), provider.called("weather", {"city": "Oslo"}))
    upstream.always(upstream.streamed(*events))
    gateway = await start()
    answer = await gateway.ask(post(kit, BODY, openai_beta="responses=v2"))
    assert answer.status == 200 and answer.body == b"".join(events)
    [sent] = upstream.requests
    assert sent.body == BODY and sent.line == "POST /v1/responses HTTP/1.1"
    assert sent.headers["openai-beta"] == "responses=v2"
    [record] = gateway.requests()
    assert record.usage == Usage(input_text=10, cache_read_text=20, output_text=5, output_reasoning=4)
    assert (record.api, record.finish_reason, record.tool_calls) == ("responses", "tool_calls", 1)


async def test_a_whole_response_is_kept_and_continued_by_its_owner_alone(start, upstream, kit):
    upstream.always(upstream.whole(provider.response(provider.said("one"))))
    config = {
        "keys": [
            {"key": kit.KEY, "tenant": "acme", "team": "core", "project": "apollo", "id": "key_1"},
            {"key": "tk-" + "B" * 43, "tenant": "other", "team": "core", "project": "apollo", "id": "key_2"},
        ]
    }
    gateway = await start(**config)
    sdk = gateway.sdk()
    first = await sdk.responses.create(model=MODEL, input="hello")
    assert first.id == provider.RESPONSE_ID and first.output_text == "one"
    assert (await sdk.responses.retrieve(first.id)).output_text == "one"
    assert upstream.requests[0].json == {"input": "hello", "model": MODEL}
    await sdk.responses.create(model=MODEL, input="on", previous_response_id=first.id)
    assert upstream.requests[1].json["previous_response_id"] == first.id
    stranger = gateway.sdk("tk-" + "B" * 43)
    for call in (
        stranger.responses.create(model=MODEL, input="on", previous_response_id=first.id),
        stranger.responses.retrieve(first.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await call
    assert len(upstream.requests) == 2


async def test_a_streamed_response_is_kept_too(start, upstream, kit):
    upstream.always(upstream.streamed(*provider.response_events(provider.said("one two"))))
    gateway = await start()
    sdk = gateway.sdk()
    async with sdk.responses.stream(model=MODEL, input="hello") as stream:
        final = await stream.get_final_response()
    assert final.output_text == "one two"
    assert (await sdk.responses.retrieve(final.id)).output_text == "one two"
    await sdk.responses.delete(final.id)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(final.id)


async def test_a_conversation_goes_on_at_a_target_of_another_kind(start, upstream, kit):
    upstream.then(upstream.whole(provider.response(provider.said("one"))))
    upstream.then(upstream.whole(upstream.completion("two")))
    gateway = await start()
    sdk = gateway.sdk()
    first = await sdk.responses.create(model=MODEL, input="hello")
    gateway.target(MODEL, "u1")._apis = frozenset(("chat",))  # the same server, as one that speaks chats alone
    second = await sdk.responses.create(model=MODEL, input="on", previous_response_id=first.id)
    assert second.output_text == "two"


async def test_codes_of_errors_are_the_providers(start, upstream, kit):
    error = {"message": "Your input exceeds the context window", "type": "invalid_request_error", "param": "input"}
    upstream.always(upstream.whole({"error": error | {"code": "context_length_exceeded"}}, 400))
    gateway = await start()
    answer = await gateway.ask(post(kit, BODY))
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert "exceeds the context window" in answer.error["message"]


async def test_a_key_that_the_provider_refuses_is_not_the_callers(start, upstream, kit):
    error = {"message": "Incorrect API key", "type": "invalid_request_error", "code": "invalid_api_key"}
    upstream.always(upstream.whole({"error": error}, 401))
    gateway = await start()
    answer = await gateway.ask(post(kit, BODY))
    assert (answer.status, answer.error["code"]) == (502, "upstream_credentials_refused")


async def test_a_response_that_fails_in_its_stream_says_why(start, upstream, kit):
    begun = provider.response_events(provider.said("one two"))[:6]
    error = {"code": "rate_limit_exceeded", "message": "Slow down"}
    failed = provider.response(status="failed", error=error)
    upstream.always(upstream.streamed(*begun, provider.event({"type": "response.failed", "response": failed})))
    gateway = await start()
    answer = await gateway.ask(post(kit, BODY))
    assert answer.body.startswith(b"".join(begun))
    last = json.loads(answer.events[-1].partition(b"data: ")[2])
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "rate_limit_exceeded")


async def test_a_stream_beyond_its_limit_is_cut_and_ends_as_an_incomplete_response(start, upstream, kit):
    upstream.always(upstream.streamed(*provider.response_events(provider.said(" ".join(["word"] * 300)))))
    gateway = await start()
    async with gateway.sdk().responses.stream(model=MODEL, input="hello", max_output_tokens=50, store=False) as stream:
        events = [event async for event in stream]
    last = events[-1]
    assert last.type == "response.incomplete" and last.response.id == provider.RESPONSE_ID
    assert last.response.incomplete_details.reason == "max_output_tokens"
    assert len(last.response.output_text.split()) == 50
    assert last.sequence_number == events[-2].sequence_number + 1


@pytest.mark.parametrize("field", [{"background": True}, {"conversation": "conv_1"}])
async def test_what_lives_on_at_the_provider_is_refused(start, upstream, kit, field):
    gateway = await start(apis=["responses"])
    answer = await gateway.ask(post(kit, json.dumps({"model": MODEL, "input": "a", **field}).encode()))
    assert (answer.status, answer.error["param"]) == (400, next(iter(field)))
    assert upstream.requests == []


async def test_a_limit_is_clipped_under_the_apis_own_name(start, upstream, kit):
    upstream.always(upstream.whole(provider.response(provider.said("one"))))
    limits = [{"id": "l", "tenant": "acme", "level": "tenant", "metric": "tokens", "window": "day", "amount": 150}]
    gateway = await start(limits=limits)
    body = b'{"max_output_tokens": 900, "model":"gpt","input":"a","store":false}'
    assert (await gateway.ask(post(kit, body))).status == 200
    sent = upstream.requests[0].json["max_output_tokens"]
    assert 0 < sent < 150 and upstream.requests[0].body == body.replace(b"900", b"%d" % sent)


COMPACTION = {
    "id": "resp_001",
    "object": "response.compaction",
    "created_at": 1764967971,
    "output": [
        {"id": "msg_000", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"id": "cmp_001", "type": "compaction", "encrypted_content": "gAAAAABpM0Yj"},
    ],
    "usage": {
        "input_tokens": 139,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 438,
        "output_tokens_details": {"reasoning_tokens": 64},
        "total_tokens": 577,
    },
}


async def test_a_history_is_compacted_by_the_provider_and_metered(start, upstream, kit):
    whole = json.dumps(COMPACTION).encode()
    upstream.always(upstream.whole(whole))
    gateway = await start()
    body = BODY.replace(b'"stream":true,', b"")
    answer = await gateway.ask(kit.request(body, path="/v1/responses/compact"))
    assert (answer.status, answer.body) == (200, whole)
    [sent] = upstream.requests
    assert (sent.line, sent.body) == ("POST /v1/responses/compact HTTP/1.1", body)
    [record] = gateway.requests()
    assert record.usage == Usage(input_text=139, cache_read_text=0, output_text=374, output_reasoning=64)
    assert record.cost_pico_usd is not None and json.loads(record.provider_usage) == COMPACTION["usage"]


async def test_compaction_is_refused_by_name_where_no_target_can(start, kit):
    gateway = await start(apis=("chat",))
    plain = json.dumps({"model": json.loads(BODY)["model"], "input": "Hello"}).encode()
    answer = await gateway.ask(kit.request(plain, path="/v1/responses/compact"))
    assert answer.status == 400 and "apis: [responses]" in answer.error["message"]
    gateway = await start()
    body = BODY[:-1] + b',"previous_response_id":"resp_1"}'
    answer = await gateway.ask(kit.request(body, path="/v1/responses/compact"))
    assert (answer.status, answer.error["param"]) == (400, "previous_response_id")
