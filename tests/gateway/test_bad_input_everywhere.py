"""What is wrong, asked of every endpoint: each has its documented error, in the words of the endpoint's own API.

Endpoints are those that a running gateway has, so that a new one stands in these tables from its first day.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bench.fuzzing.answers import Answer, check_error
from bench.fuzzing.bodies import SECRET, example_of, full_example_of
from bench.fuzzing.rig import KEY, SCRIPTED, SERVED, FuzzRig
from gateway.apis.operations import Operation
from gateway.apis.rendering import ErrorShape

EXPIRED, ELSEWHERE, OTHER_MODEL, NOBODYS = ("tk-" + letter * 43 for letter in "EWMN")
ACME = {"tenant": "acme", "team": "core", "project": "apollo"}
KEYS: list[dict[str, Any]] = [
    {"key": EXPIRED, "id": "expired", "expires_at": "2026-01-01T00:00:00Z", **ACME},
    {"key": OTHER_MODEL, "id": "other_model", "models": [SCRIPTED], **ACME},
    # One key for each API that there is, which may use another.
    {"key": ELSEWHERE, "id": "elsewhere", "endpoints": ["completions"], **ACME},
    {"key": "tk-" + "C" * 43, "id": "elsewhere_too", "endpoints": ["embeddings"], **ACME},
]
RESOURCES = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/scripted-1"),
    ("POST", "/v1/messages/count_tokens"),
    ("GET", "/v1/responses/resp_1"),
    ("DELETE", "/v1/responses/resp_1"),
    ("GET", "/v1/responses/resp_1/input_items"),
    ("GET", "/v1/files"),
    ("POST", "/v1/files"),
    ("GET", "/v1/files/file-1"),
    ("DELETE", "/v1/files/file-1"),
    ("GET", "/v1/files/file-1/content"),
    ("GET", "/v1/batches"),
    ("POST", "/v1/batches"),
    ("GET", "/v1/batches/batch_1"),
    ("POST", "/v1/batches/batch_1/cancel"),
]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzRig]:
    with FuzzRig(tmp_path_factory.mktemp("everywhere"), KEYS) as rig:
        yield rig


@pytest.fixture(autouse=True)
def _books(rig: FuzzRig) -> Iterator[None]:
    """Afterwards everything is given back, a record stands for each request, and no log tells prompt or key."""
    yield
    rig.run(rig.settle())


def request(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    given = {
        "Host": "localhost",
        "Authorization": f"Bearer {KEY}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **(headers or {}),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


def only(rig: FuzzRig, data: bytes) -> Answer:
    [answer] = rig.run(rig.ask(data))
    return answer


def refused(rig: FuzzRig, asked: Operation | ErrorShape, data: bytes, *statuses: int) -> str:
    """Send what must be refused; hold the refusal to its API's shape and give its message with all it names."""
    shape = asked if isinstance(asked, ErrorShape) else asked.errors
    answer = only(rig, data)
    assert answer.status in statuses, (data[:300], answer.status, answer.body[:500])
    error = check_error(answer.body, shape)
    assert SECRET.encode() not in answer.body and KEY.encode() not in answer.body, answer.body[:500]
    assert len(answer.body) < 5_000
    return json.dumps(error)


def taking_json(rig: FuzzRig) -> list[Operation]:
    """Return the operations whose bodies are JSON: all but the one that takes an upload."""
    return [operation for operation in rig.operations if operation.api != "audio.transcriptions"]


def body_of(operation: Operation, **fields: Any) -> bytes:
    return json.dumps(example_of(operation.api, SCRIPTED) | fields).encode()


# name: what of it is sent in place of a good body
BODIES = {
    "empty": lambda good: b"",
    "cut short": lambda good: good[:-3],
    "another word at its end": lambda good: good + b"x",
    "a trailing comma": lambda good: good[:-1] + b",}",
    "single quotes": lambda good: good.replace(b'"', b"'"),
    "an array": lambda good: b"[" + good + b"]",
    "a text": lambda good: b'"hello"',
    "null": lambda good: b"null",
    "nothing in it": lambda good: b"{}",
    "not UTF-8 in the model": lambda good: good.replace(SCRIPTED.encode(), b"\xff"),
    "not UTF-8 in the prompt": lambda good: good.replace(SECRET.encode(), b"\xc3\x28"),
    "not UTF-8 in a field nobody knows": lambda good: good[:-1] + b',"unheard_of":"\xff"}',
    "UTF-16": lambda good: good.decode().encode("utf-16"),
    "a lone surrogate": lambda good: good.replace(SECRET.encode(), b"\\ud800"),
    "a NUL in it": lambda good: good.replace(SECRET.encode(), b"\x00"),
    "NULs alone": lambda good: b"\x00" * 100,
    "NaN": lambda good: good[:-1] + b',"temperature":NaN}',
    "nested 100,000 deep": lambda good: good[:-1] + b',"unheard_of":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "objects 100,000 deep": lambda good: good[:-1] + b',"unheard_of":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    "nested deep in the prompt": lambda good: good.replace(b'"' + SECRET.encode() + b'"', b"[" * 5_000 + b"]" * 5_000),
    "10 MB of nothing": lambda good: good + b" " * 10_000_000 + b"x",
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_cannot_be_read_is_refused(rig: FuzzRig, name: str) -> None:
    for operation in taking_json(rig):
        good = body_of(operation)
        refused(rig, operation, request("POST", operation.paths[0], BODIES[name](good)), 400)


# Their bodies are the target's to judge, but for the model, the prompt or input, and what they are priced by.
PASSED_ON = ("images.generations", "audio.speech", "moderations")
# Fields that are the target's to judge, which knows what it can do, and documents, which may have parts.
LEFT_TO_TARGETS = {("chat.completions", "response_format"), ("chat.completions", "tool_choice"),
                   ("completions", "response_format")}  # fmt: skip
MAY_BE_OBJECTS = {("rerank", "query"), ("score", "text_1")}
VALUES: dict[str, Any] = {
    "object": {"a": {"b": [1]}},
    "array": [[[1]]],
    "text": "thing",
    "boolean": True,
    "number": 1.5,
    "huge": 10**30,
    "huge below": -(10**30),
}
NUMBERS = ("number", "huge", "huge below")


def wrong_values(value: Any) -> list[str]:
    """Return what a field may not be, by what a good one is."""
    if isinstance(value, bool):
        return [name for name in VALUES if name != "boolean"]
    if isinstance(value, int | float):
        return [name for name in VALUES if name != "number"]
    if isinstance(value, str):
        return ["object", "boolean", *NUMBERS]
    return ["boolean", *NUMBERS] if isinstance(value, list) else ["array", "boolean", *NUMBERS]


def test_a_field_of_a_wrong_kind_or_size_is_refused_by_its_name(rig: FuzzRig) -> None:
    tried = 0
    for operation in taking_json(rig):
        if operation.api in PASSED_ON:
            continue
        for field, value in full_example_of(operation.api, SCRIPTED).items():
            place = (operation.api, field)
            if place in LEFT_TO_TARGETS:
                continue
            for kind in wrong_values(value):
                if kind == "object" and place in MAY_BE_OBJECTS:
                    continue
                data = body_of(operation, **{field: VALUES[kind]})
                told = refused(rig, operation, request("POST", operation.paths[0], data), 400)
                assert field in told, (operation.api, field, kind, told)
                tried += 1
    assert tried > 300


def test_ten_million_bytes_of_prompt_are_read(rig: FuzzRig) -> None:
    for operation, model, streamed in rig.answered:
        if model == SERVED and not streamed:
            body = json.dumps(example_of(operation.api, model)).replace(SECRET, "x" * 10_000_000).encode()
            answer = only(rig, request("POST", operation.paths[0], body))
            assert answer.status == 200, (operation.api, answer.body[:300])


def test_a_body_beyond_the_limit_is_refused_before_it_is_sent(rig: FuzzRig) -> None:
    for operation in rig.operations:
        head = request("POST", operation.paths[0], headers={"Content-Length": str(40_000_000)})
        assert "33554432" in refused(rig, operation, head, 413)


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
def test_a_body_that_is_not_called_json_is_refused(rig: FuzzRig, kind: str) -> None:
    for operation in taking_json(rig):
        data = request("POST", operation.paths[0], body_of(operation), {"Content-Type": kind})
        assert "application/json" in refused(rig, operation, data, 415)


def test_an_absurd_number_of_headers_is_refused(rig: FuzzRig) -> None:
    for operation in rig.operations:
        for headers in ({f"x-{number}": "a" for number in range(100)}, {"x-long": "a" * 40_000}):
            data = request("POST", operation.paths[0], body_of(operation), headers)
            refused(rig, operation, data, 431)


@pytest.mark.parametrize("key", ["", "short", NOBODYS, EXPIRED], ids=["none", "short", "unknown", "expired"])
@pytest.mark.parametrize("header", ["Authorization", "X-Api-Key"])
def test_a_key_that_is_not_good_is_refused(rig: FuzzRig, key: str, header: str) -> None:
    sent = {"Authorization": "", header: f"Bearer {key}" if key and header == "Authorization" else key}
    for operation in rig.operations:
        data = request("POST", operation.paths[0], body_of(operation), sent)
        told = refused(rig, operation, data, 401)
        assert not key or key not in told
        assert key != EXPIRED or "expired" in told


def test_a_key_that_may_not_use_an_endpoint_or_a_model_is_refused(rig: FuzzRig) -> None:
    for operation in taking_json(rig):
        other = ELSEWHERE if operation.api != "completions" else KEYS[3]["key"]
        told = refused(rig, operation, as_key(operation, other, SCRIPTED), 403)
        assert operation.api in told
        assert SERVED in refused(rig, operation, as_key(operation, OTHER_MODEL, SERVED), 404)


def as_key(operation: Operation, key: str, model: str) -> bytes:
    return request("POST", operation.paths[0], body_of(operation, model=model), {"Authorization": f"Bearer {key}"})


def test_a_model_that_is_not_there_is_named(rig: FuzzRig) -> None:
    for operation in taking_json(rig):
        for model in ("gpt-nope", "gpt\x00nope", "../../etc/passwd", "m" * 200):
            told = refused(rig, operation, request("POST", operation.paths[0], body_of(operation, model=model)), 404)
            assert model[:3] in told


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_a_method_that_is_not_answered_is_refused(rig: FuzzRig, method: str) -> None:
    for operation in rig.operations:
        for path in operation.paths:
            answer = only(rig, request(method, path))
            assert answer.status == 405 and answer.headers["allow"].startswith("POST"), (path, answer.body)
            check_error(answer.body, operation.errors)


def shape_at(rig: FuzzRig, path: str) -> ErrorShape:
    resource = rig.gateway._endpoints._resource_of(path)
    return resource.errors if resource is not None else rig.operations[0].errors


@pytest.mark.parametrize(("method", "path"), RESOURCES)
def test_what_is_kept_is_shown_to_nobody_without_a_good_key(rig: FuzzRig, method: str, path: str) -> None:
    shape = shape_at(rig, path)
    for key in ("", "short", NOBODYS, EXPIRED):
        refused(rig, shape, request(method, path, b"{}", {"Authorization": key and f"Bearer {key}"}), 401)
    if not path.startswith("/v1/models"):
        refused(rig, shape, request(method, path, b"{}", {"Authorization": f"Bearer {ELSEWHERE}"}), 403)


@pytest.mark.parametrize(("method", "path"), RESOURCES)
def test_a_resource_answers_its_methods_alone(rig: FuzzRig, method: str, path: str) -> None:
    allowed = rig.gateway._endpoints._methods_of(path)
    assert method in allowed, "the table is older than the endpoint"
    for other in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - set(allowed):
        refused(rig, shape_at(rig, path), request(other, path, b"{}"), 405)


@pytest.mark.parametrize(("method", "path"), [one for one in RESOURCES if "_1" in one[1] or "-1/" in one[1]])
def test_what_does_not_exist_is_not_found(rig: FuzzRig, method: str, path: str) -> None:
    for odd in ("1", "x" * 300, "%00", "%ff", "..%2f..", "1%27%20OR%201=1", "é"):
        told = path.replace("_1", f"_{odd}").replace("-1", f"-{odd}")
        refused(rig, shape_at(rig, told), request(method, told, b""), 404, 400)


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/batches"])
def test_a_resource_refuses_a_body_that_cannot_be_read(rig: FuzzRig, path: str, name: str) -> None:
    good = json.dumps({"model": SCRIPTED, "messages": [{"role": "user", "content": SECRET}]}).encode()
    refused(rig, shape_at(rig, path), request("POST", path, BODIES[name](good)), 400)


BOUNDARY = "--b\r\nContent-Disposition: form-data; name={}\r\n\r\n{}\r\n"
FORMS = {
    "no form": ("application/json", b"{}"),
    "no boundary": ("multipart/form-data", b"--b--\r\n"),
    "nothing in it": ("multipart/form-data; boundary=b", b""),
    "no end": ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nabc'),
    "no file": ("multipart/form-data; boundary=b", b"--b--\r\n"),
    "another boundary": ("multipart/form-data; boundary=c", b"--b--\r\n"),
    "no disposition": ("multipart/form-data; boundary=b", b"--b\r\n\r\nabc\r\n--b--\r\n"),
    "garbage": ("multipart/form-data; boundary=b", b"\x00\xff" * 1000),
    "a purpose that is none": (
        "multipart/form-data; boundary=b",
        (BOUNDARY.format('"purpose"', "\x00") + BOUNDARY.format('"file"; filename="a"', "{}") + "--b--\r\n").encode(),
    ),
    "a long boundary": (f"multipart/form-data; boundary={'b' * 5000}", b"--b--\r\n"),
}


@pytest.mark.parametrize("name", FORMS)
def test_an_upload_that_is_none_is_refused(rig: FuzzRig, name: str) -> None:
    kind, body = FORMS[name]
    refused(rig, shape_at(rig, "/v1/files"), request("POST", "/v1/files", body, {"Content-Type": kind}), 400, 415)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=-1", "limit=x", "limit=99999999999999999999", "after=%00", "order=%ff"]
)
@pytest.mark.parametrize("path", ["/v1/files", "/v1/batches", "/v1/responses/resp_1/input_items"])
def test_a_query_that_is_wrong_is_refused_by_name(rig: FuzzRig, path: str, query: str) -> None:
    answer = only(rig, request("GET", f"{path}?{query}"))
    assert answer.status in (200, 400, 404), answer.body
    if answer.status != 200:
        check_error(answer.body, shape_at(rig, path))
