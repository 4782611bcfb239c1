"""Every answer has an id, errors below /v1/messages are Anthropic's, and what is not offered is not found."""

import json
from uuid import UUID

import pytest

from tests.gateway.conftest import KEY

BEARER = f"Authorization: Bearer {KEY}\r\n"
UNREADABLE = [
    ("POST", "Content-Length: 5\r\nContent-Length: 6\r\n", 400),
    ("POST", "Transfer-Encoding: gzip\r\n", 400),
    ("POST", "Content-Length: 99999999999\r\n", 413),
    ("POST", f"X-Long: {'x' * 70000}\r\n", 431),
    ("POST", "Content-Encoding: gzip\r\nContent-Length: 0\r\n", 415),
]


def head_of(method, path, lines=""):
    length = "" if "Content-Length" in lines or "Transfer-Encoding" in lines else "Content-Length: 0\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: a\r\n{lines}{length}\r\n".encode()


def identified(answer):
    return UUID(answer.headers["x-request-id"]).version == 7


@pytest.mark.parametrize(
    ("method", "path", "lines", "status"),
    [
        ("GET", "/health", "", 200),
        ("GET", "/ready", "", 200),
        ("GET", "/metrics", "", 200),
        ("GET", "/v1/models", BEARER, 200),
        ("GET", "/v1/models/scripted-1", BEARER, 200),
        ("GET", "/v1/models/nope", BEARER, 404),
        ("GET", "/v1/models", "", 401),
        ("GET", "/v1/files", BEARER, 200),
        ("GET", "/v1/batches", BEARER, 200),
        ("GET", "/v1/responses/resp_1", BEARER, 404),
        ("GET", "/nope", "", 404),
        ("PUT", "/health", "", 405),
        ("POST", "/v1/chat/completions", BEARER, 415),
        ("POST", "/v1/chat/completions", "", 401),
        *((method, "/v1/chat/completions", lines, status) for method, lines, status in UNREADABLE),
    ],
)
async def test_every_answer_has_an_id(gateway, method, path, lines, status):
    answer = await gateway.ask(head_of(method, path, lines))
    assert answer.status == status and identified(answer)


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nope"])
async def test_an_answer_to_head_has_one_too(gateway, path):
    assert identified(await gateway.ask(head_of("HEAD", path, BEARER), has_body=False))


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_of_a_model_has_the_id_of_its_record_and_no_other(gateway, stream, eventually):
    answer = await gateway.chat(stream=stream)
    await eventually(lambda: gateway.requests())
    assert answer.headers["x-request-id"] == str(UUID(bytes=gateway.requests()[0].request_id))


async def test_ids_differ_on_one_connection(gateway):
    client = await gateway.connect()
    seen = set()
    for _ in range(3):
        await client.send(head_of("GET", "/health"))
        seen.add((await client.answer()).headers["x-request-id"])
    assert len(seen) == 3


def anthropic_error(answer, kind):
    body = answer.json
    assert set(body) == {"type", "error", "request_id"} and body["type"] == "error"
    assert body["error"]["type"] == kind
    assert body["request_id"] == answer.headers["x-request-id"] == answer.headers["request-id"]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize(
    ("method", "lines", "body", "status", "kind"),
    [
        ("GET", BEARER, b"", 405, "invalid_request_error"),
        ("POST", "", b"{}", 401, "authentication_error"),
        ("POST", BEARER, b"{", 400, "invalid_request_error"),
        ("POST", BEARER, b"{}", 400, "invalid_request_error"),
        ("POST", BEARER, b'{"model":"no","max_tokens":1,"messages":[{"role":"user","content":"a"}]}', 400, ""),
    ],
)
async def test_errors_of_the_messages_api_are_anthropics(gateway, path, method, lines, body, status, kind):
    lines += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    if not kind and path.endswith("tokens"):
        body = body.replace(b'"max_tokens":1,', b"")
        lines = lines.replace("Content-Length: 72", f"Content-Length: {len(body)}")
    answer = await gateway.ask(head_of(method, path, lines) + body)
    if not kind:
        status, kind = 404, "not_found_error"
    assert answer.status == status, answer.body
    anthropic_error(answer, kind)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches", "/v1/messages/"])
@pytest.mark.parametrize(("method", "lines", "status"), UNREADABLE)
async def test_what_cannot_be_read_is_refused_in_anthropics_shape(gateway, path, method, lines, status):
    answer = await gateway.ask(head_of(method, path, lines))
    assert answer.status == status
    anthropic_error(answer, "request_too_large" if status == 413 else "invalid_request_error")


@pytest.mark.parametrize(
    "path", ["/v1/messages/batch", "/v1/messages/batches/b/lines", "/v1/messages/", "/v1/messages/x"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_unknown_paths_below_messages_are_not_found_in_anthropics_shape(gateway, method, path):
    answer = await gateway.ask(head_of(method, path, BEARER))
    assert answer.status == 404
    anthropic_error(answer, "not_found_error")


async def test_a_limit_is_told_in_anthropics_shape(start_gateway, kit):
    limits = [{"id": "r", "tenant": "acme", "level": "tenant", "metric": "requests", "amount": 1, "window": "minute"}]
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), limits=limits))
    body = json.dumps({"model": "scripted-1", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}).encode()
    await gateway.ask(gateway.request(body, path="/v1/messages"))
    answer = await gateway.ask(gateway.request(body, path="/v1/messages"))
    assert answer.status == 429 and answer.headers["retry-after"]
    anthropic_error(answer, "rate_limit_error")


async def test_a_draining_gateway_answers_in_the_shape_of_the_path(gateway):
    gateway.gateway._endpoints.is_draining = True
    answer = await gateway.ask(head_of("POST", "/v1/messages/batches"))
    assert answer.status == 529
    anthropic_error(answer, "overloaded_error")
    answer = await gateway.ask(head_of("POST", "/v1/responses"))
    assert (answer.status, answer.error["code"]) == (503, "draining") and identified(answer)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/responses/expand"),
        ("PUT", "/v1/responses/expand"),
        ("POST", "/v1/models/scripted-1:predict"),
        ("POST", "/v1/files/upload"),
        ("DELETE", "/v1/batches/all"),
        ("POST", "/v1/batches/all"),
    ],
)
async def test_what_is_not_offered_is_not_found_rather_than_taken_for_an_id(gateway, method, path):
    answer = await gateway.ask(head_of(method, path, BEARER))
    assert (answer.status, answer.error["code"]) == (404, "not_found")
    assert path in answer.error["message"] and "allow" not in answer.headers


@pytest.mark.parametrize("operation", ["generateContent", "streamGenerateContent", "countTokens"])
async def test_geminis_operations_are_served_below_its_stable_version_too(gateway, operation):
    answer = await gateway.ask(head_of("POST", f"/v1/models/scripted-1:{operation}", BEARER))
    error = json.loads(answer.body)["error"]  # an empty body of no stated type
    assert answer.status == error["code"] and answer.status in (400, 415) and error["status"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/v1/responses/resp_1", "get, delete"),
        ("POST", "/v1/models/llama3:8b", "get"),
        ("POST", "/v1/files/file-1", "get, delete"),
        ("POST", "/v1/batches/batch_1", "get"),
        ("GET", "/v1/responses", "post"),
    ],
)
async def test_a_wrong_method_of_what_may_be_there_is_one(gateway, method, path, allow):
    answer = await gateway.ask(head_of(method, path, BEARER))
    assert (answer.status, answer.headers["allow"].lower()) == (405, allow)
