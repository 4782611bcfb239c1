"""What an application, or a stranger, may send that is wrong: the answer, and that nothing of it counts as usage."""

import asyncio
import json
import logging

import pytest

KEY = "tk-" + "A" * 43
SECRET = "xyzzy-prompt-text"
MESSAGES = [{"role": "user", "content": SECRET}]


@pytest.fixture
async def checked(gateway, caplog):
    """The gateway; afterwards it must still serve, have counted nothing, and have told nobody the prompt or key."""
    caplog.set_level(logging.DEBUG)
    yield gateway
    assert all(not record.usage.is_known and record.attempts == 0 for record in gateway.requests())
    assert all(record.outcome == "rejected" for record in gateway.requests())
    assert not gateway.attempts()
    assert gateway.gateway.admission.in_flight == 0
    assert (await gateway.chat()).status == 200
    assert SECRET not in caplog.text and KEY not in caplog.text
    assert "Traceback" not in caplog.text


def is_safe(answer) -> bool:
    return SECRET.encode() not in answer.body and KEY.encode() not in answer.body


# name: (body, status, code, param, words of the message)
BODIES = {
    "cut short": (b'{"model": "scripted-1", "mess', 400, "malformed_json", None, ["byte 29 of 29", "too early"]),
    "a wrong character": (b'{"model": @}', 400, "malformed_json", None, ["byte 10 of 12"]),
    "empty": (b"", 400, "malformed_json", None, ["byte 0 of 0"]),
    "not UTF-8": (b'{"model": "\xff"}', 400, "malformed_json", None, ["UTF-8"]),
    "a lone surrogate": (b'{"model": "\\ud800", "messages": []}', 400, "malformed_json", None, ["surrogate"]),
    "half of an emoji at the end": (
        b'{"model": "\\ud83d"}',
        400,
        "malformed_json",
        None,
        ["surrogate", "both escapes"],
    ),
    "nested 100,000 deep": (b'{"x":' + b"[" * 100_000, 400, "malformed_json", None, ["nested too deeply"]),
    "an array 100,000 deep": (b"[" * 100_000, 400, "invalid_request", None, ["object", "array"]),
    "a model twice": (
        b'{"model": "scripted-1", "messages": [{"role": "user", "content": "hi"}], "model": "scripted-1"}',
        400,
        "invalid_request",
        "model",
        ["'model' twice", "once"],
    ),
    "a model twice, once with an escape": (
        b'{"mod\\u0065l": "other", "messages": [{"role": "user", "content": "hi"}], "model": "scripted-1"}',
        400,
        "invalid_request",
        "model",
        ["'model' twice"],
    ),
    "a limit twice": (
        b'{"model": "scripted-1", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}',
        400,
        "invalid_request",
        "max_tokens",
        ["'max_tokens' twice"],
    ),
    "a model twice, with white space before the colon": (
        b'{"model"\r\n\t : "scripted-1", "messages": [{"role": "user", "content": "hi"}], "model" : "scripted-1"}',
        400,
        "invalid_request",
        "model",
        ["'model' twice"],
    ),
    "a model twice, among many colons": (
        b'{"model": "scripted-1", "messages": [{"role": "user", "content": "'
        + b"a: b" * 40
        + b'"}], "model": "other"}',
        400,
        "invalid_request",
        "model",
        ["'model' twice"],
    ),
    "a wrong field before broken JSON": (b'{"model": 5, "x": [', 400, "invalid_request", "model", ["str", "int"]),
    "a wrong field before deep nesting": (
        b'{"model": 5, "x": ' + b"[" * 100_000,
        400,
        "invalid_request",
        "model",
        ["str", "int"],
    ),
    "no model": ({"messages": MESSAGES}, 400, "invalid_request", "model", ["model is required"]),
    "no messages": ({"model": "scripted-1"}, 400, "invalid_request", "messages", ["messages is required"]),
}

# field: (value, words of the message); every one of them names field, value and limit
FIELDS = {
    "model-type": ("model", 5, ["model is 5", "str"]),
    "model-empty": ("model", "", ["a string of 0 characters", ">= 1"]),
    "model-long": ("model", "m" * 201, ["a string of 201 characters", "<= 200"]),
    "messages-type": ("messages", SECRET, ["a string of 17 characters", "array"]),
    "messages-empty": ("messages", [], ["an array of 0", ">= 1"]),
    "max_tokens-negative": ("max_tokens", -5, ["max_tokens is -5", ">= 1"]),
    "max_tokens-zero": ("max_tokens", 0, ["max_tokens is 0", ">= 1"]),
    "max_tokens-huge": ("max_tokens", 2**31, ["max_tokens is 2147483648", "<= 2147483647"]),
    "max_tokens-absurd": ("max_tokens", 10**30, [f"max_tokens is {10**30}", "<= 2147483647"]),
    "max_tokens-fraction": ("max_tokens", 1.5, ["max_tokens is 1.5", "int"]),
    "max_tokens-text": ("max_tokens", "9", ["a string of 1 characters", "int"]),
    "max_completion_tokens": ("max_completion_tokens", 0, ["max_completion_tokens is 0", ">= 1"]),
    "n-zero": ("n", 0, ["n is 0", ">= 1"]),
    "n-above": ("n", 129, ["n is 129", "<= 128"]),
    "temperature-above": ("temperature", 2.1, ["temperature is 2.1", "<= 2"]),
    "temperature-below": ("temperature", -0.1, ["temperature is -0.1", ">= 0"]),
    "top_p": ("top_p", 1.01, ["top_p is 1.01", "<= 1"]),
    "repetition_penalty": ("repetition_penalty", 1e-300, ["repetition_penalty is 1e-300", ">= 0.01"]),
    "presence_penalty": ("presence_penalty", -2.5, ["presence_penalty is -2.5", ">= -2"]),
    "stream": ("stream", "yes", ["a string of 3 characters", "bool"]),
    "stop": ("stop", 5, ["stop is 5", "array"]),
    "user-long": ("user", "u" * 257, ["a string of 257 characters", "<= 256"]),
    "top_logprobs": ("top_logprobs", 21, ["top_logprobs is 21", "<= 20"]),
    "reasoning_effort": ("reasoning_effort", SECRET, ["a string of 17 characters", "minimal"]),
    "logit_bias": ("logit_bias", {"1": 101}, ["logit_bias", "<= 100"]),
    "tools": ("tools", {}, ["tools is an object", "array"]),
    "stream_options-alone": ("stream_options", {"include_usage": True}, ["only allowed when stream is true"]),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_that_cannot_be_read_is_refused_with_what_is_wrong(checked, name):
    body, status, code, param, words = BODIES[name]
    answer = await checked.chat(json.dumps(body).encode() if isinstance(body, dict) else body)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (status, code, param)
    assert answer.error["type"] == "invalid_request_error"
    assert all(word in answer.error["message"] for word in words), answer.error["message"]
    assert is_safe(answer)


@pytest.mark.parametrize("name", FIELDS)
async def test_a_wrong_field_is_named_with_its_value_and_its_limit(checked, name):
    field, value, words = FIELDS[name]
    answer = await checked.chat(**{"messages": MESSAGES, field: value})
    assert answer.status == 400
    assert (answer.error["param"] or "").startswith(field)
    assert field in answer.error["message"]
    assert all(word in answer.error["message"] for word in words), answer.error["message"]
    assert is_safe(answer)
    assert len(checked.requests()) == 1


@pytest.mark.parametrize(
    ("message", "param", "words"),
    [
        ({"role": SECRET, "content": "a"}, "messages[1].role", ["17 characters", "system", "assistant"]),
        ({"content": SECRET}, "messages[1]", ["role"]),
        ({"role": "user", "content": 7}, "messages[1].content", ["is 7", "str"]),
        ({"role": "user", "content": [{"text": SECRET}]}, "messages[1].content[0]", ["type"]),
        (SECRET, "messages[1]", ["17 characters", "object"]),
    ],
)
async def test_a_wrong_message_is_named_by_its_place(checked, message, param, words):
    answer = await checked.chat(messages=[{"role": "user", "content": "fine"}, message])
    assert (answer.status, answer.error["param"]) == (400, param)
    assert all(word in answer.error["message"] for word in words), answer.error["message"]
    assert is_safe(answer)


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/jsonp", "multipart/form-data; boundary=x"])
async def test_a_body_that_is_not_called_json_is_refused(checked, content_type):
    answer = await checked.chat(headers={"Content-Type": content_type})
    assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")
    assert "application/json" in answer.error["message"]


async def test_the_content_type_may_have_parameters_and_capitals(gateway):
    answer = await gateway.chat(headers={"Content-Type": "Application/JSON; charset=utf-8"})
    assert answer.status == 200


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        KEY,
        "Basic " + KEY,
        "Bearer",
        "Bearer ",
        "Bearer short",
        "Bearer " + KEY + "A",
        "Bearer sk-" + "A" * 43,
        "Bearer tk-" + "A" * 42 + "é",
        "Bearer tk-" + "Z" * 43,
    ],
)
async def test_a_key_that_is_missing_malformed_or_unknown_is_refused_and_leaves_no_record(checked, authorization):
    answer = await checked.chat(headers={"Authorization": authorization}, messages=MESSAGES)
    assert (answer.status, answer.error["code"], answer.error["type"]) == (
        401,
        "invalid_api_key",
        "authentication_error",
    )
    assert "tk-" + "Z" * 43 not in answer.error["message"] and is_safe(answer)
    assert checked.requests() == [] and checked.gateway.recorder.unauthenticated_requests == 1


async def test_an_expired_key_is_refused_and_says_so(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    config["keys"][0]["expires_at"] = "2026-01-01T00:00:00Z"
    gateway = await start_gateway(config)
    answer = await gateway.chat()
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
    assert "expired" in answer.error["message"]


async def test_an_unknown_model_is_404_and_names_it(checked):
    answer = await checked.chat(model="gpt-nope", messages=MESSAGES)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "model_not_found", "model")
    assert "gpt-nope" in answer.error["message"] and is_safe(answer)


@pytest.mark.parametrize(("limit", "status"), [(99, 200), (100, 200), (101, 400)])
async def test_max_tokens_is_held_to_the_models_context(start_gateway, kit, limit, status):
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    config["models"][0]["context_tokens"] = 100
    gateway = await start_gateway(config)
    answer = await gateway.chat(max_tokens=limit)
    assert answer.status == status
    if status == 400:
        assert "101" in answer.error["message"] and "100" in answer.error["message"]


@pytest.mark.parametrize(
    ("tags", "status"),
    [
        (",".join(f"k{number}=v" for number in range(16)), 200),
        (",".join(f"k{number}=v" for number in range(17)), 400),
        ("a=" + "v" * 128, 200),
        ("a=" + "v" * 129, 400),
        ("novalue", 400),
        ("=v", 400),
    ],
)
async def test_tags_are_held_to_what_a_record_can_carry(gateway, tags, status):
    answer = await gateway.chat(headers={"x-tollkeeper-tags": tags})
    assert answer.status == status
    if status == 400:
        assert answer.error["param"] == "x-tollkeeper-tags"


@pytest.mark.parametrize(
    ("line", "status", "code", "allow"),
    [
        ("GET /v1/chat/completions", 405, "method_not_allowed", "post"),
        ("PUT /v1/chat/completions", 405, "method_not_allowed", "post"),
        ("POST /v1/models", 405, "method_not_allowed", "get"),
        ("DELETE /v1/models/scripted-1", 405, "method_not_allowed", "get"),
        ("POST /health", 405, "method_not_allowed", "get"),
        ("GET /", 404, "not_found", None),
        ("POST /v1/nope", 404, "not_found", None),
        ("GET /v1/models/nope", 404, "model_not_found", None),
    ],
)
async def test_a_wrong_path_or_method_is_answered_as_openai_would(checked, line, status, code, allow):
    head = f"{line} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 0\r\n\r\n"
    answer = await checked.ask(head.encode())
    assert (answer.status, answer.error["code"]) == (status, code)
    assert answer.headers.get("allow") == allow


async def test_head_gets_the_headers_and_no_body(gateway):
    client = await gateway.connect()
    for path, status in (("/health", 200), ("/v1/chat/completions", 405), ("/nope", 404)):
        await client.send(f"HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert (await client.answer(has_body=False)).status == status
    await client.send(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await client.answer()).json == {"status": "ok"}  # nothing of the earlier answers stood in its way


async def test_a_prompt_is_never_in_the_log_not_even_when_the_target_fails(start_gateway, kit, caplog):
    caplog.set_level(logging.DEBUG)
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted(fault="error")])))
    answer = await gateway.chat(messages=MESSAGES)
    assert answer.status == 502 and is_safe(answer)
    assert SECRET not in caplog.text and KEY not in caplog.text


async def test_a_fault_of_the_gateway_itself_is_a_500_that_shows_nothing(gateway, monkeypatch, caplog):
    async def broken(call, sink):
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr(gateway.target("scripted-1", "s1"), "call", broken)
    answer = await gateway.chat()
    assert (answer.status, answer.error["code"], answer.error["type"]) == (500, "internal_error", "server_error")
    assert is_safe(answer)
    [record] = gateway.requests()
    assert (record.outcome, record.error_code) == ("error", "internal_error")
    assert (record.usage.output_tokens, record.count_method) == (0, "estimate")


@pytest.mark.interpreted
async def test_a_record_that_cannot_be_written_does_not_leave_the_client_waiting(gateway, monkeypatch):
    def broken(life):
        raise RuntimeError("no record")

    loop = asyncio.get_running_loop()
    faults = []
    loop.set_exception_handler(lambda loop, context: faults.append(context["exception"]))
    monkeypatch.setattr(gateway.gateway.recorder, "record", broken)
    assert (await gateway.chat()).status == 200
    monkeypatch.undo()
    assert (await gateway.chat()).status == 200


async def test_a_fault_behind_another_path_is_a_500_as_well(gateway, monkeypatch):
    def broken():
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr(gateway.gateway._endpoints, "_health", broken)
    client = await gateway.connect()
    for _ in range(2):
        await client.send(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = await asyncio.wait_for(client.answer(), 5)
        assert (answer.status, answer.error["code"]) == (500, "internal_error") and is_safe(answer)
