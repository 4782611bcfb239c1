"""Answers of servers over HTTP in another API's words: what servers send oddly, and attempts that failed unseen."""

import json

import pytest

from gateway.replies.translated_reply import TranslatedReply

MODEL = "m"
ASKED = {
    "/v1/messages": {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]},
    "/v1/responses": {"model": MODEL, "input": "hello", "store": False},
}
FIRST_AND_LAST = {
    "/v1/messages": ("message_start", "message_stop"),
    "/v1/responses": ("response.created", "response.completed"),
}

pytestmark = pytest.mark.parametrize("path", ASKED)


def names(answer):
    """The kinds of a stream's events, each of which is one line of a name and one of data."""
    found = []
    for event in answer.events:
        name, data = event.decode().split("\n")
        assert json.loads(data.removeprefix("data: "))["type"] == name.removeprefix("event: ")
        found.append(name.removeprefix("event: "))
    return found


@pytest.fixture
async def gateway(start_gateway, kit, upstream):
    return await start_gateway(kit.configuration((MODEL, [kit.http_target(upstream.url)])))


def stream(gateway, path, **fields):
    return gateway.chat(ASKED[path], path=path, stream=True, **fields)


async def test_fields_that_are_null_are_as_good_as_absent(gateway, upstream, path):
    delta = {"content": "Hi", "tool_calls": None, "thinking_blocks": None, "reasoning_content": None, "refusal": None}
    told = upstream.event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    upstream.then(upstream.streamed(told, upstream.chunk(finish="stop"), upstream.usage(3, 1)))
    answer = await stream(gateway, path)
    assert (answer.status, b"Hi" in answer.body) == (200, True)
    assert (names(answer)[0], names(answer)[-1]) == FIRST_AND_LAST[path]
    assert gateway.requests()[-1].outcome == "ok"


async def test_what_an_attempt_said_that_nobody_saw_is_forgotten_with_it(start_gateway, kit, new_upstream, path):
    first, second = await new_upstream(), await new_upstream()
    broken = {"content": "never seen", "tool_calls": "none"}
    first.always(first.streamed(first.event({"choices": [{"index": 0, "delta": broken}]})))
    second.always(second.streamed(second.chunk("Hi"), second.chunk(finish="stop"), second.usage(3, 1)))
    targets = [kit.http_target(first.url, "u1", weight=1_000_000), kit.http_target(second.url, "u2", weight=1)]
    gateway = await start_gateway(kit.configuration((MODEL, targets)))
    answer = await stream(gateway, path)
    assert len(first.requests) == len(second.requests) == 1
    assert (names(answer)[0], names(answer)[-1]) == FIRST_AND_LAST[path]
    assert b"never seen" not in answer.body


@pytest.mark.parametrize("index", [-1, 1, 10_000_000])
async def test_a_choices_number_costs_nothing_whatever_it_is(gateway, upstream, path, index):
    body = upstream.completion()
    body["choices"] = [{"index": index, "message": {"content": "Hi"}, "finish_reason": "stop"}]
    upstream.then(upstream.whole(body))
    answer = await gateway.chat(ASKED[path], path=path)
    assert b"Hi" not in answer.body
    assert answer.status == 200 if path == "/v1/responses" else b"upstream_broken" in answer.body


async def test_a_body_of_many_lines_breaks_no_event(gateway, upstream, path):
    fields = {"name": "f", "description": "two\nlines"}
    schema = {"type": "object", "properties": {}}
    if path == "/v1/messages":
        more = {"tools": [{**fields, "input_schema": schema}], "tool_choice": {"type": "tool", "name": "f"}}
    else:
        form = {"type": "json_schema", "name": "a", "schema": schema}
        more = {
            "tools": [{"type": "function", **fields, "parameters": schema}],
            "tool_choice": {"type": "function", "name": "f"},
            "text": {"format": form},
        }
    upstream.then(upstream.streamed(upstream.chunk("Hi"), upstream.chunk(finish="stop"), upstream.usage(3, 1)))
    body = json.dumps({**ASKED[path], "stream": True, **more}, indent=2).replace("\n", "\r\n").encode()
    answer = await gateway.chat(body, path=path)
    assert answer.status == 200
    assert (names(answer)[0], names(answer)[-1]) == FIRST_AND_LAST[path]


async def test_a_schema_is_refused_at_whatever_depth_it_is_too_deep(gateway, upstream, path):
    upstream.always(upstream.whole(upstream.completion()))
    statuses = []
    for depth in range(860, 975):  # how deep the stack is already differs from run to run
        schema = b'{"a":' * depth + b"1" + b"}" * depth
        tool = b'{"name":"t","input_schema":%b}' if path == "/v1/messages" else b'{"name":"t","parameters":%b}'
        body = json.dumps(ASKED[path]).encode()[:-1] + b',"tools":[%b]}' % (tool % schema)
        statuses.append((await gateway.chat(body, path=path)).status)
    assert statuses == sorted(statuses) and set(statuses) == {200, 400}


@pytest.mark.interpreted
async def test_an_answer_that_cannot_be_rendered_is_told_and_billed(gateway, upstream, path, monkeypatch):
    def fail(*_):
        raise ValueError("a bug")

    monkeypatch.setattr(TranslatedReply, "prepare_end", fail)
    upstream.then(upstream.whole(upstream.completion()))
    answer = await gateway.chat(ASKED[path], path=path)
    assert answer.status == 500 and b"a bug" not in answer.body
    [record] = gateway.requests()
    assert (record.outcome, record.error_code, record.usage.total_tokens) == ("error", "internal_error", 5)
