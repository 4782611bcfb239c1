"""Google's Gemini API in front of every kind of target."""

import json
from typing import Any

import pytest
from google import genai

MODEL = "m"
USER: dict[str, Any] = {"role": "user", "parts": [{"text": "one two three"}]}
WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "Tell the weather",
    "parameters": {
        "type": "OBJECT",
        "properties": {"city": {"type": "STRING", "nullable": True}},
        "required": ["city"],
    },
}


@pytest.fixture
async def gateway(start_gateway, kit, upstream):
    return await start_gateway(kit.configuration((MODEL, [kit.http_target(upstream.url)])))


async def ask(gateway, kit, verb: str = "generateContent", **fields: Any) -> Any:
    path = f"/v1beta/models/{MODEL}:{verb}"
    headers = {"Authorization": "", "x-goog-api-key": kit.KEY}
    return await gateway.ask(kit.request(json.dumps({"contents": [USER], **fields}).encode(), headers, path=path))


def events(answer: Any) -> list[Any]:
    return [json.loads(event.removeprefix(b"data: ")) for event in answer.events]


async def test_a_request_becomes_a_chat_and_its_answer_a_response(gateway, upstream, kit):
    upstream.always(upstream.whole(upstream.completion("Hi there")))
    config = {"temperature": 0.5, "topP": 0.9, "maxOutputTokens": 50, "stopSequences": ["END"], "seed": 7}
    answer = await ask(gateway, kit, systemInstruction={"parts": [{"text": "be brief"}]}, generationConfig=config)
    assert answer.status == 200
    [candidate] = answer.json["candidates"]
    assert candidate == {
        "content": {"parts": [{"text": "Hi there"}], "role": "model"},
        "index": 0,
        "finishReason": "STOP",
    }
    assert answer.json["usageMetadata"] == {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    assert answer.json["modelVersion"] == MODEL and answer.json["responseId"]
    assert upstream.requests[0].json == {
        "model": MODEL,
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one two three"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 50,
        "stop": ["END"],
        "seed": 7,
    }
    [record] = gateway.requests()
    assert (record.api, record.requested_model, record.outcome) == ("generate_content", MODEL, "ok")


async def test_a_stream_is_events_of_responses_the_last_with_end_and_usage(gateway, upstream, kit):
    upstream.always(
        upstream.streamed(
            upstream.chunk("Hi "), upstream.chunk("there"), upstream.chunk(finish="length"), upstream.usage(3, 2)
        )
    )
    answer = await ask(gateway, kit, "streamGenerateContent?alt=sse")
    assert answer.headers["content-type"].startswith("text/event-stream")
    *pieces, last = events(answer)
    assert [one["candidates"][0]["content"]["parts"][0]["text"] for one in pieces] == ["Hi ", "there"]
    assert last["candidates"][0]["finishReason"] == "MAX_TOKENS"
    assert last["usageMetadata"]["candidatesTokenCount"] == 2


async def test_functions_go_there_and_back(gateway, upstream, kit):
    call = {"id": "call_9", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    body = upstream.completion()
    body["choices"] = [
        {
            "index": 0,
            "message": {"role": "assistant", "content": None, "tool_calls": [call]},
            "finish_reason": "tool_calls",
        }
    ]
    upstream.then(upstream.whole(body))
    upstream.then(upstream.whole(upstream.completion("Rain.")))
    tools = [{"functionDeclarations": [WEATHER]}]
    forced = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["weather"]}}
    first = await ask(gateway, kit, tools=tools, toolConfig=forced)
    [part] = first.json["candidates"][0]["content"]["parts"]
    assert part == {"functionCall": {"name": "weather", "args": {"city": "Oslo"}, "id": "call_9"}}
    sent = upstream.requests[0].json
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert sent["tools"][0]["function"]["parameters"] == {
        "type": "object",
        "properties": {"city": {"type": ["string", "null"]}},
        "required": ["city"],
    }
    result = {"functionResponse": {"name": "weather", "response": {"sky": "grey"}}}
    turns = [
        USER,
        {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}]},
        {"role": "user", "parts": [result]},
    ]
    second = await ask(gateway, kit, contents=turns, tools=tools)
    assert second.json["candidates"][0]["content"]["parts"] == [{"text": "Rain."}]
    messages = upstream.requests[1].json["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]
    assert json.loads(messages[2]["content"]) == {"sky": "grey"}


async def test_calls_of_a_stream_come_whole_at_its_end(gateway, upstream, kit):
    def piece(**function: str) -> bytes:
        call = {"index": 0, "function": function, **({"id": "call_1"} if "name" in function else {})}
        return bytes(upstream.event({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))

    upstream.always(
        upstream.streamed(
            piece(name="weather", arguments=""),
            piece(arguments='{"city":'),
            piece(arguments='"Oslo"}'),
            upstream.chunk(finish="tool_calls"),
            upstream.usage(3, 9, completion_tokens_details={"reasoning_tokens": 4}),
        )
    )
    answer = await ask(gateway, kit, "streamGenerateContent?alt=sse", tools=[{"functionDeclarations": [WEATHER]}])
    last = events(answer)[-1]
    assert last["candidates"][0]["content"]["parts"][0]["functionCall"]["args"] == {"city": "Oslo"}
    assert (last["usageMetadata"]["thoughtsTokenCount"], last["usageMetadata"]["candidatesTokenCount"]) == (4, 5)


async def test_snake_case_images_and_schemas_are_taken(gateway, upstream, kit):
    upstream.always(upstream.whole(upstream.completion("{}")))
    blob = {"inline_data": {"mime_type": "image/png", "data": "AAAA"}}
    config = {"response_mime_type": "application/json", "response_schema": {"type": "OBJECT", "properties": {}}}
    contents = [{"role": "user", "parts": [{"text": "what?"}, blob]}]
    answer = await ask(
        gateway, kit, contents=contents, system_instruction={"parts": [{"text": "s"}]}, generation_config=config
    )
    assert answer.status == 200
    sent = upstream.requests[0].json
    assert sent["messages"][1]["content"][1]["image_url"]["url"] == "data:image/png;base64,AAAA"
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object", "properties": {}}


async def test_a_kept_answer_is_not_given_in_the_other_form(start_gateway, kit, upstream):
    config = kit.configuration((MODEL, [kit.http_target(upstream.url)]))
    config["models"][0]["cache"] = {"mode": "exact", "ttl_seconds": 600}
    gateway = await start_gateway(config)
    upstream.then(upstream.whole(upstream.completion("Hi there")))
    upstream.then(upstream.streamed(upstream.chunk("Hi", finish="stop"), upstream.usage(3, 2)))
    first, again = [await ask(gateway, kit) for _ in range(2)]
    assert len(upstream.requests) == 1 and again.json["candidates"] == first.json["candidates"]
    streamed = await ask(gateway, kit, "streamGenerateContent?alt=sse")
    assert streamed.headers["content-type"].startswith("text/event-stream") and len(upstream.requests) == 2


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"contents": []}, "contents"),
        ({"generationConfig": {"temperature": 3}}, "temperature"),
        ({"generationConfig": {"newThing": 1}}, "newThing"),
        ({"tools": [{"googleSearch": {}}]}, "googleSearch"),
        ({"cachedContent": "cachedContents/1"}, "cachedContent"),
        ({"contents": [{"role": "user", "parts": [{"fileData": {"fileUri": "gs://a"}}]}]}, "parts[0]"),
        ({"contents": [{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}]}, "'f'"),
    ],
)
async def test_what_is_wrong_or_not_offered_is_said_in_googles_shape(gateway, upstream, kit, fields, said):
    answer = await ask(gateway, kit, **fields)
    error = answer.json["error"]
    assert (answer.status, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert said in error["message"]
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        (
            {"generationConfig": {"maxOutputTokens": 101}},
            "generationConfig.maxOutputTokens",
            "generationConfig.maxOutputTokens is 101; the context",
        ),
        (
            {"generationConfig": {"stopSequences": ["x"]}},
            "generationConfig.stopSequences",
            "generationConfig.stopSequences is not supported",
        ),
    ],
)
async def test_what_a_model_refuses_is_named_by_googles_field(start_gateway, upstream, kit, fields, field, said):
    target = kit.http_target(upstream.url) | {"settings": {"refuses": ["stop"]}}
    config = kit.configuration((MODEL, [target]))
    config["models"][0]["context_tokens"] = 100
    answer = await ask(await start_gateway(config), kit, **fields)
    error = answer.json["error"]
    assert (answer.status, error["details"][0]["metadata"]) == (400, {"field": field}), error
    assert said in error["message"] and "max_tokens" not in error["message"]


async def test_models_are_listed_and_prompts_counted(start_gateway, kit):
    gateway = await start_gateway(kit.configuration((MODEL, [kit.scripted()])))
    counted = await ask(gateway, kit, "countTokens")
    assert (counted.status, counted.json) == (200, {"totalTokens": 3})
    listing = kit.request(b"", {"Content-Length": "0"}, path="/v1beta/models").replace(b"POST", b"GET", 1)
    listed = await gateway.ask(listing)
    assert [model["name"] for model in listed.json["models"]] == [f"models/{MODEL}"]


async def test_clients_of_google_get_its_shapes_at_paths_that_other_apis_have_too(start_gateway, kit):
    gateway = await start_gateway(kit.configuration((MODEL, [kit.scripted()])))

    async def get(path: str, **headers: str) -> Any:
        given = {"Content-Length": "0", **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await gateway.ask(kit.request(b"", given, path=path).replace(b"POST", b"GET", 1))

    google = {"Authorization": "", "x_goog_api_key": kit.KEY}
    for version in ("v1", "v1beta", "v1alpha"):
        listed = await get(f"/{version}/models?pageSize=50", **google)
        assert [model["name"] for model in listed.json["models"]] == [f"models/{MODEL}"]
        assert (await get(f"/{version}/models/{MODEL}", **google)).json["displayName"] == MODEL
        nothing = await get(f"/{version}/models/nothing", **google)
        assert (nothing.status, nothing.json["error"]["status"]) == (404, "NOT_FOUND")
        for path in (f"/{version}/files", f"/upload/{version}/files", f"/{version}/cachedContents"):
            absent = await get(path, **google)
            assert (absent.status, absent.json["error"]["status"]) == (404, "NOT_FOUND")
            assert ":generateContent" in absent.json["error"]["message"]
    assert (await get("/v1/models")).json["data"][0]["object"] == "model"
    assert (await get("/v1/files")).json["object"] == "list"


async def test_paths_keys_and_models_that_are_not_there(gateway, kit):
    path = await ask(gateway, kit, "predictLongRunning")
    assert (path.status, path.json["error"]["status"]) == (404, "NOT_FOUND")
    assert ":generateContent" in path.json["error"]["message"]
    stream = await ask(gateway, kit, "streamGenerateContent")
    assert stream.status == 400 and "alt=sse" in stream.json["error"]["message"]
    body = json.dumps({"contents": [USER]}).encode()
    unknown = await gateway.ask(kit.request(body, path="/v1beta/models/nothing:generateContent"))
    assert (unknown.status, unknown.json["error"]["status"]) == (404, "NOT_FOUND")
    nobody = {"Authorization": "", "x-goog-api-key": "tk-" + "Z" * 43}
    refused = await gateway.ask(kit.request(body, nobody, path=f"/v1beta/models/{MODEL}:generateContent"))
    assert (refused.status, refused.json["error"]["status"]) == (401, "UNAUTHENTICATED")


async def test_googles_sdk_chats_streams_and_calls_functions(start_gateway, kit, upstream):
    upstream.then(upstream.whole(upstream.completion("Hi there")))
    upstream.then(upstream.streamed(upstream.chunk("a "), upstream.chunk("b", finish="stop"), upstream.usage(3, 2)))
    gateway = await start_gateway(kit.configuration((MODEL, [kit.http_target(upstream.url)])))
    options = {"base_url": gateway.base_url.removesuffix("/v1")}
    client = genai.Client(api_key=kit.KEY, http_options=options)
    whole = await client.aio.models.generate_content(model=MODEL, contents="hello", config={"temperature": 0.1})
    assert whole.text == "Hi there" and whole.usage_metadata.total_token_count == 5
    stream = await client.aio.models.generate_content_stream(model=MODEL, contents="hello")
    assert "".join([piece.text or "" async for piece in stream]) == "a b"
    counted = await client.aio.models.count_tokens(model=MODEL, contents="hello")
    assert counted.total_tokens > 0
    await client.aio.aclose()
    client.close()
