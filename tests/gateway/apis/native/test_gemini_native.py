"""Targets that speak Google's Gemini API: requests and answers pass through as they came."""

import json
from typing import Any

import pytest

from contracts.metering.usage import Usage
from tests.gateway.apis.native.provider import GEMINI_USAGE, gemini_answer, gemini_events

MODEL = "gemini-pro"
# With blanks, fields that no chat can carry, and one that the gateway does not know: all of it must arrive.
BODY = (
    b'{ "contents" : [{"role":"user","parts":[{"text":"hi"},{"fileData":{"fileUri":"gs://a/b"}}]}],\n'
    b'"tools":[{"googleSearch":{}}], "generationConfig":{"temperature":0.5}, "brandNew": 1e3 }'
)
COUNTED = Usage(input_text=10, input_image=30, cache_read_text=60, output_text=7, output_reasoning=3)
WHOLE, STREAM = f"/v1beta/models/{MODEL}:generateContent", f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"


@pytest.fixture
def start(start_gateway, kit, upstream):
    """Start a gateway whose model is at a server that speaks the Gemini API."""

    async def start(more: Any = None, **fields: Any) -> Any:
        target = kit.http_target(upstream.url, **(more or {}))
        target["settings"] = {"apis": ["gemini"], **target["settings"]}
        return await start_gateway(kit.configuration((MODEL, [target]), **fields))

    return start


async def test_a_body_arrives_byte_for_byte_and_so_does_the_answer(start, upstream, kit):
    call = {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}
    whole = json.dumps(gemini_answer({"text": "one"}, call, responseId="r"), indent=1).encode()
    upstream.always(upstream.whole(whole))
    gateway = await start()
    reply = await gateway.ask(kit.request(BODY, {"x-tollkeeper-conversation-id": "s1"}, path=WHOLE))
    assert (reply.status, reply.body) == (200, whole)
    [sent] = upstream.requests
    assert (sent.body, sent.line) == (BODY, f"POST /v1/models/{MODEL}:generateContent HTTP/1.1")
    [record] = gateway.requests()
    assert (record.api, record.count_method, record.usage) == ("generate_content", "reported", COUNTED)
    assert (record.finish_reason, record.tools, record.tool_calls) == ("tool_calls", ["weather"], 1)
    assert (record.model_version, json.loads(record.provider_usage)) == ("gemini-3-pro-001", GEMINI_USAGE)
    assert len(record.prompt_marks) == 3


async def test_a_stream_passes_event_by_event(start, upstream, kit):
    thought = {"text": "Hm", "thought": True}
    call = {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}
    sent = gemini_events(
        gemini_answer(thought, finish=None), gemini_answer({"text": "one two"}, finish=None), gemini_answer(call)
    )
    upstream.always(upstream.streamed(*sent))
    gateway = await start({"model": "models/x y"})
    reply = await gateway.ask(kit.request(BODY, path=STREAM))
    assert reply.body == b"".join(sent)
    assert upstream.requests[0].line == "POST /v1/models/models/x%20y:streamGenerateContent?alt=sse HTTP/1.1"
    [record] = gateway.requests()
    assert (record.usage, record.finish_reason, record.tools) == (COUNTED, "tool_calls", ["weather"])
    assert record.ttft_ns is not None and record.stream


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (b'"generationConfig":{"temperature":0.5}', {"temperature": 0.5, "maxOutputTokens": 20}),
        (b'"generation_config":{"max_output_tokens":500}', {"maxOutputTokens": 20}),
        (b'"generationConfig":{"maxOutputTokens":19}', {"maxOutputTokens": 19}),
        (b'"generationConfig":{"maxOutputTokens":20}', {"maxOutputTokens": 20}),
        (b'"generationConfig":{"maxOutputTokens":21}', {"maxOutputTokens": 20}),
    ],
)
async def test_a_limit_clips_the_output_and_all_else_stays(start, upstream, kit, given, sent):
    upstream.always(upstream.whole(gemini_answer({"text": "one"})))
    rule = {"id": "cap", "tenant": "acme", "level": "tenant", "metric": "output_tokens", "window": "day", "amount": 20}
    gateway = await start(limits=[rule])
    body = BODY.replace(b'"generationConfig":{"temperature":0.5}', given)
    assert (await gateway.ask(kit.request(body, path=WHOLE))).status == 200
    fields = json.loads(upstream.requests[0].body)
    assert (fields.get("generationConfig") or fields["generation_config"]) == sent
    assert fields["tools"] == [{"googleSearch": {}}] and fields["brandNew"] == 1e3


async def test_a_stream_is_cut_at_a_limit_and_ended_in_googles_words(start, upstream, kit):
    words = [gemini_answer({"text": " word"}, finish=None) for _ in range(50)]
    for one in words:
        del one["usageMetadata"]
    upstream.always(upstream.streamed(*gemini_events(*words, gemini_answer({"text": "."}))))
    rule = {"id": "cap", "tenant": "acme", "level": "tenant", "metric": "output_tokens", "window": "day", "amount": 20}
    gateway = await start(limits=[rule])
    reply = await gateway.ask(kit.request(BODY, path=STREAM))
    said = [json.loads(line[6:]) for line in reply.body.splitlines() if line.startswith(b"data: ")]
    assert len(said) == 21 and said[-1]["candidates"][0]["finishReason"] == "MAX_TOKENS"
    assert said[-1]["tollkeeper"]["ended_by"]["code"]
    [record] = gateway.requests()
    assert record.finish_reason == "length" and "cap" in record.limit


async def test_googles_errors_keep_their_status_and_its_key_is_sent_as_google_takes_it(
    start, upstream, kit, monkeypatch
):
    monkeypatch.setenv("GOOGLE_API_KEY", "secret-key-of-google")
    error = {"error": {"code": 400, "message": "Invalid JSON payload: brandNew", "status": "INVALID_ARGUMENT"}}
    upstream.always(upstream.whole(error, status=400))
    gateway = await start({"key": "env:GOOGLE_API_KEY"})
    reply = await gateway.ask(kit.request(BODY, path=WHOLE))
    assert reply.status == 400 and "brandNew" in reply.json["error"]["message"]
    assert reply.json["error"]["status"] == "INVALID_ARGUMENT"
    assert upstream.requests[0].headers["x-goog-api-key"] == "secret-key-of-google"
    assert "authorization" not in upstream.requests[0].headers


@pytest.mark.parametrize("value", [0, -1, 1.5, "9", 2**31])
async def test_an_output_limit_that_is_none_is_refused_by_name(start, kit, value):
    gateway = await start()
    body = json.dumps({"contents": [], "generationConfig": {"maxOutputTokens": value}}).encode()
    reply = await gateway.ask(kit.request(body, path=WHOLE))
    assert reply.status == 400 and "generationConfig.maxOutputTokens" in reply.json["error"]["message"]


async def test_a_prompt_that_google_blocks_is_recorded_as_filtered(start, upstream, kit):
    blocked = {
        "promptFeedback": {"blockReason": "SAFETY"},
        "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9},
    }
    upstream.always(upstream.whole(blocked))
    gateway = await start()
    reply = await gateway.ask(kit.request(BODY, path=WHOLE))
    assert (reply.status, reply.json) == (200, blocked)
    [record] = gateway.requests()
    assert (record.finish_reason, record.usage) == ("content_filter", Usage(input_text=9, output_text=0))
