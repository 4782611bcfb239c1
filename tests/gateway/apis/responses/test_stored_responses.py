"""Responses that are kept: continued, read back, listed, deleted, forgotten in time, and seen by nobody else."""

import asyncio

import openai
import pytest

from backends.objects.responses import ResponseStore
from contracts.errors import ObjectsUnavailable
from contracts.objects.responses import MAX_RESPONSE_BYTES
from gateway.request.clock import Clock

MODEL = "scripted-1"
OTHER_KEY = "tk-" + "B" * 43
SIBLING_KEY = "tk-" + "C" * 43
WHOLE_TENANT_KEY = "tk-" + "D" * 43
NAMESAKE_KEY = "tk-" + "E" * 43
DAY_NS = 86_400 * 10**9


@pytest.fixture
async def upstream_gateway(start_gateway, kit, upstream):
    """A data plane before a model server, with keys of two tenants, of two projects, and of none."""
    upstream.always(upstream.whole(upstream.completion("Hi there")))
    config = kit.configuration((MODEL, [kit.http_target(upstream.url)]))
    config["keys"] += [
        {"key": OTHER_KEY, "tenant": "rival", "team": "core", "project": "apollo", "id": "key_2"},
        {"key": SIBLING_KEY, "tenant": "acme", "team": "core", "project": "gemini", "id": "key_3"},
        {"key": WHOLE_TENANT_KEY, "tenant": "acme", "id": "key_4"},
        {"key": NAMESAKE_KEY, "tenant": "acme", "team": "other", "project": "apollo", "id": "key_5"},
    ]
    return await start_gateway(config)


def ask(gateway, text="Hello", **fields):
    return gateway.sdk().responses.create(model=MODEL, input=text, **fields)


async def test_a_response_is_read_back_as_it_was_given(upstream_gateway):
    made = await ask(upstream_gateway, metadata={"a": "b"}, instructions="be brief")
    again = await upstream_gateway.sdk().responses.retrieve(made.id)
    assert again == made and again.store is True


async def test_a_streamed_response_is_kept_before_its_end_is_sent(upstream_gateway, upstream):
    upstream.then(upstream.streamed(upstream.chunk("Hi"), upstream.chunk(finish="stop"), upstream.usage(3, 1)))
    async for event in await ask(upstream_gateway, stream=True):
        if event.type == "response.completed":
            assert await upstream_gateway.sdk().responses.retrieve(event.response.id) == event.response


async def test_a_conversation_is_continued_without_its_instructions(upstream_gateway, upstream):
    first = await ask(upstream_gateway, "one", instructions="be brief")
    second = await ask(upstream_gateway, "two", previous_response_id=first.id, instructions="be long")
    third = await ask(upstream_gateway, "three", previous_response_id=second.id)
    assert third.previous_response_id == second.id
    said = [{"role": "assistant", "content": "Hi there"}]
    begun = [{"role": "user", "content": "one"}, *said]
    assert upstream.requests[1].json["messages"] == [
        {"role": "system", "content": "be long"},
        *begun,
        {"role": "user", "content": "two"},
    ]
    assert upstream.requests[2].json["messages"] == [
        *begun,
        {"role": "user", "content": "two"},
        *said,
        {"role": "user", "content": "three"},
    ]


async def test_a_continued_conversation_is_estimated_by_all_of_it(start_gateway, kit, upstream):
    upstream.always(upstream.whole({**upstream.completion("word " * 400), "usage": None}))
    gateway = await start_gateway(kit.configuration((MODEL, [kit.http_target(upstream.url)])))
    first = await ask(gateway, "word " * 400)
    await ask(gateway, "and?", previous_response_id=first.id)
    short, long = gateway.requests()
    assert long.usage.input_text > 1.8 * short.usage.input_text
    assert long.request_bytes < short.request_bytes


async def test_tool_calls_are_answered_in_the_next_response(upstream_gateway, upstream):
    call = {"id": "call_1", "type": "function", "function": {"name": "sum", "arguments": '{"a":1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    upstream.then(upstream.whole({**upstream.completion(), "choices": [choice]}))
    tools = [{"type": "function", "name": "sum", "parameters": {"type": "object"}, "strict": None}]
    first = await ask(upstream_gateway, "add", tools=tools)
    [item] = first.output
    assert (item.type, item.call_id, item.name, item.arguments) == ("function_call", "call_1", "sum", '{"a":1}')
    assert upstream_gateway.requests()[-1].tool_calls == 1
    output = [{"type": "function_call_output", "call_id": "call_1", "output": "3"}]
    await ask(upstream_gateway, output, previous_response_id=first.id)
    assert upstream.requests[-1].json["messages"] == [
        {"role": "user", "content": "add"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
    ]


async def test_items_are_named_instead_of_sent_again(upstream_gateway, upstream):
    first = await ask(upstream_gateway, "one")
    given = [{"type": "item_reference", "id": first.output[0].id}, {"role": "user", "content": "two"}]
    second = await ask(upstream_gateway, given)
    assert upstream.requests[-1].json["messages"] == [
        {"role": "assistant", "content": "Hi there"},
        {"role": "user", "content": "two"},
    ]
    listed = [item.id async for item in upstream_gateway.sdk().responses.input_items.list(second.id, order="asc")]
    assert listed[0] == first.output[0].id
    for missing in ("msg_" + "0" * 32 + "o0000", "msg_1"):
        with pytest.raises(openai.NotFoundError, match=f"Item with id '{missing}' not found"):
            await ask(upstream_gateway, [{"type": "item_reference", "id": missing}])


async def test_what_references_name_is_looked_through_up_to_a_bound(upstream_gateway, monkeypatch):
    made = [await ask(upstream_gateway, "x" * 2000) for _ in range(3)]
    named = [{"type": "item_reference", "id": response.output[0].id} for response in made]
    monkeypatch.setattr("gateway.apis.responses.keeper.MAX_HISTORY_BYTES", 8000)
    await ask(upstream_gateway, named[:2] * 2)  # each is looked through once
    with pytest.raises(openai.BadRequestError, match="items of responses of more than 8000 bytes; at most"):
        await ask(upstream_gateway, named)
    monkeypatch.setattr("gateway.apis.responses.keeper.MAX_HISTORY_RESPONSES", 1)
    with pytest.raises(openai.BadRequestError, match="items of 2 responses; at most 1 responses"):
        await ask(upstream_gateway, named[:2])


async def test_a_call_without_a_name_is_refused_when_it_is_handed_back(upstream_gateway, upstream):
    body = upstream.completion()
    call = {"id": "call_1", "type": "function", "function": {"arguments": "{}"}}
    body["choices"] = [{"index": 0, "message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]
    upstream.then(upstream.whole(body))
    first = await ask(upstream_gateway)
    output = [{"type": "function_call_output", "call_id": "call_1", "output": "3"}]
    with pytest.raises(openai.BadRequestError, match=f"the item '{first.output[0].id}' of an earlier response cannot"):
        await ask(upstream_gateway, output, previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError, match="cannot be sent to a model again"):
        await ask(upstream_gateway, [{"type": "item_reference", "id": first.output[0].id}])


async def test_input_that_cannot_be_listed_is_answered_and_not_kept(upstream_gateway, kit):
    body = b'{"model": "scripted-1", "input": [{"role": "user", "content": "a", "of_others": 1e999}]}'
    answer = await upstream_gateway.ask(kit.request(body, path="/v1/responses"))
    assert (answer.status, answer.json["store"]) == (200, False)
    assert answer.json["tollkeeper"]["not_stored"]["code"] == "invalid_request"


async def test_who_may_not_ask_does_not_learn_what_is_kept(start_gateway, kit, upstream):
    upstream.always(upstream.whole(upstream.completion("Hi there")))
    config = kit.configuration((MODEL, [kit.http_target(upstream.url)]))
    held = {"key": OTHER_KEY, "tenant": "acme", "project": "apollo", "id": "key_2", "endpoints": ["chat.completions"]}
    config["keys"].append(held)
    gateway = await start_gateway(config)
    first = await ask(gateway)
    other = gateway.sdk(OTHER_KEY).responses
    for previous in (first.id, "resp_" + "0" * 32):
        with pytest.raises(openai.PermissionDeniedError):
            await other.create(model=MODEL, input="x", previous_response_id=previous)
    with pytest.raises(openai.NotFoundError, match="the model 'none' does not exist"):
        await gateway.sdk().responses.create(model="none", input="x", previous_response_id="resp_1")


async def test_input_is_listed_in_pages_both_ways(upstream_gateway):
    texts = [f"text {number}" for number in range(5)]
    made = await ask(upstream_gateway, [{"role": "user", "content": text} for text in texts])
    listing = upstream_gateway.sdk().responses.input_items
    page = await listing.list(made.id, limit=2, order="asc")
    assert [item.content[0].text for item in page.data] == texts[:2] and page.has_more
    assert (page.first_id, page.last_id) == (page.data[0].id, page.data[-1].id)
    rest = await listing.list(made.id, limit=3, order="asc", after=page.last_id)
    assert [item.content[0].text for item in rest.data] == texts[2:] and not rest.has_more
    newest_first = [item.content[0].text async for item in listing.list(made.id, limit=2)]
    assert newest_first == texts[::-1]
    assert all(item.type == "message" and item.status == "completed" and item.role == "user" for item in page.data)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("limit=0", "limit is '0'; it is a number from 1 to 100"),
        ("limit=101", "limit is '101'"),
        ("limit=x", "limit is 'x'"),
        ("order=up", "order is 'up'; it is asc or desc"),
        ("after=msg_9", "Item with id 'msg_9' not found."),
        ("&".join(f"a{n}=1" for n in range(101)), "the query has more than 100 parameters"),
    ],
)
async def test_a_bad_page_is_refused_by_name(upstream_gateway, kit, query, said):
    made = await ask(upstream_gateway)
    path = f"/v1/responses/{made.id}/input_items?{query}"
    head = f"GET {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {kit.KEY}\r\n\r\n"
    answer = await upstream_gateway.ask(head.encode())
    assert answer.status in (400, 404) and said in answer.error["message"]


async def test_what_is_deleted_is_gone_and_cannot_be_continued(upstream_gateway):
    sdk = upstream_gateway.sdk()
    first = await ask(upstream_gateway)
    second = await ask(upstream_gateway, previous_response_id=first.id)
    await sdk.responses.delete(first.id)
    for call in (sdk.responses.retrieve(first.id), sdk.responses.delete(first.id)):
        with pytest.raises(openai.NotFoundError, match=f"Response with id '{first.id}' not found."):
            await call
    assert (await sdk.responses.retrieve(second.id)).id == second.id
    for previous in (first.id, second.id):  # what it said is gone from all that continues it
        with pytest.raises(openai.NotFoundError, match=f"Previous response with id '{first.id}' not found.") as error:
            await ask(upstream_gateway, previous_response_id=previous)
        assert error.value.code == "previous_response_not_found" and error.value.param == "previous_response_id"


@pytest.mark.parametrize("key", [OTHER_KEY, SIBLING_KEY, NAMESAKE_KEY])
async def test_responses_are_invisible_to_other_tenants_and_projects(upstream_gateway, key):
    made = await ask(upstream_gateway)
    item = made.output[0].id
    other = upstream_gateway.sdk(key).responses
    for call in (
        other.retrieve(made.id),
        other.delete(made.id),
        other.cancel(made.id),
        other.input_items.list(made.id),
        other.create(model=MODEL, input="x", previous_response_id=made.id),
        other.create(model=MODEL, input=[{"type": "item_reference", "id": item}]),
    ):
        with pytest.raises(openai.NotFoundError) as hidden:
            await call
        unknown = hidden.value.message.replace(made.id, "ID").replace(item, "ID")
        assert "not found" in unknown
    assert (await upstream_gateway.sdk().responses.retrieve(made.id)).id == made.id


async def test_a_key_without_a_project_sees_all_of_its_tenants(upstream_gateway):
    made = await ask(upstream_gateway)
    assert (await upstream_gateway.sdk(WHOLE_TENANT_KEY).responses.retrieve(made.id)).id == made.id


@pytest.mark.parametrize("identifier", ["resp_1", "resp_" + "0" * 32, "resp_" + "f" * 33, "%27"])
async def test_an_unknown_id_is_not_found(upstream_gateway, identifier):
    with pytest.raises(openai.NotFoundError, match="Response with id"):
        await upstream_gateway.sdk().responses.retrieve(identifier)


async def test_a_response_cannot_be_cancelled_and_is_not_streamed_again(upstream_gateway):
    made = await ask(upstream_gateway)
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
        await upstream_gateway.sdk().responses.cancel(made.id)
    with pytest.raises(openai.BadRequestError, match="stream is true"):
        await upstream_gateway.sdk().responses.retrieve(made.id, stream=True)


async def test_responses_outlive_a_restart(start_gateway, kit, upstream, tmp_path):
    upstream.always(upstream.whole(upstream.completion("Hi there")))
    config = kit.configuration((MODEL, [kit.http_target(upstream.url)]))
    before = await start_gateway(config, data=tmp_path / "kept")
    made = await ask(before)
    await before.gateway.stop()
    after = await start_gateway(config, data=tmp_path / "kept")
    assert await after.sdk().responses.retrieve(made.id) == made
    await ask(after, previous_response_id=made.id)
    assert len(upstream.requests[-1].json["messages"]) == 3


async def test_what_has_expired_is_gone_and_what_continues_it_keeps_it(upstream_gateway, monkeypatch):
    gateway, sdk = upstream_gateway.gateway, upstream_gateway.sdk()
    alone, first = await ask(upstream_gateway), await ask(upstream_gateway)
    now = gateway._clock.wall_ns()
    days = 0
    monkeypatch.setattr(gateway._responses, "_clock", Clock(wall_ns=lambda: now + days * DAY_NS))
    days = 20
    second = await ask(upstream_gateway, previous_response_id=first.id)
    days = 31
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(alone.id)
    assert await gateway._responses.sweep() == 1
    await sdk.responses.retrieve(first.id)
    await ask(upstream_gateway, previous_response_id=second.id)
    days = 20 + 30
    assert await gateway._responses.sweep() == 0  # kept by the third, of the 31st day
    days = 31 + 31
    assert await gateway._responses.sweep() == 3


async def refuse(self, response):
    raise ObjectsUnavailable("the database does not answer")


async def hang(self, response):
    await asyncio.Event().wait()


async def fail(self, response):
    raise RuntimeError("a fault nobody thought of")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("add", "said"),
    [
        (refuse, "the database does not answer"),
        (hang, "the database of stored responses did not accept it within 0.05 seconds"),
        (fail, "the gateway failed to store it; see its log"),
    ],
)
async def test_a_response_that_could_not_be_kept_says_so(start_gateway, kit, monkeypatch, stream, add, said):
    gateway = await start_gateway(kit.configuration((MODEL, [kit.scripted()])))
    gateway.gateway._responses.patience_seconds = 0.05
    monkeypatch.setattr(ResponseStore, "add", add)
    made = await ask(gateway, stream=stream)
    if stream:
        events = [event async for event in made]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[-1].type == "response.completed"
        made = events[-1].response
    assert made.status == "completed" and made.store is False and made.output_text
    note = made.to_dict()["tollkeeper"]["not_stored"]
    assert note == {"code": "objects_unavailable", "message": said}
    assert gateway.requests()[-1].outcome == "ok"


async def test_a_response_too_large_to_be_kept_says_so(start_gateway, kit, monkeypatch):
    monkeypatch.setattr("gateway.apis.responses.keeper.MAX_RESPONSE_BYTES", 3000)
    gateway = await start_gateway(kit.configuration((MODEL, [kit.scripted(reply="yes")])))
    small = await ask(gateway, "x")
    assert small.store is True and MAX_RESPONSE_BYTES == 32 * 1024 * 1024
    large = await ask(gateway, "x" * 3000)
    assert large.store is False and large.to_dict()["tollkeeper"]["not_stored"]["code"] == "response_too_large"


async def test_a_history_too_long_is_refused(upstream_gateway, monkeypatch):
    first = await ask(upstream_gateway, "x" * 1000)
    monkeypatch.setattr("gateway.apis.responses.keeper.MAX_HISTORY_BYTES", 1000)
    with pytest.raises(openai.BadRequestError, match="start a new conversation") as error:
        await ask(upstream_gateway, previous_response_id=first.id)
    assert error.value.code == "history_too_long"


async def test_a_database_that_is_away_is_said_before_the_model_is_asked(start_gateway, kit, upstream, tmp_path):
    (tmp_path / "folder").mkdir()
    config = kit.configuration((MODEL, [kit.http_target(upstream.url)]))
    gateway = await start_gateway(config, objects_url=f"sqlite:///{tmp_path}/folder")
    with pytest.raises(openai.InternalServerError, match="does not answer") as error:
        await ask(gateway, previous_response_id="resp_" + "0" * 32)
    assert error.value.status_code == 503 and error.value.code == "objects_unavailable"
    assert not upstream.requests


async def test_store_false_touches_no_database(start_gateway, kit, tmp_path):
    gateway = await start_gateway(kit.configuration((MODEL, [kit.scripted()])), data=tmp_path / "data")
    made = await ask(gateway, store=False)
    assert made.store is False and not gateway.gateway.kept.is_open
    assert not (tmp_path / "data" / "objects.db").exists()
    with pytest.raises(openai.NotFoundError):
        await gateway.sdk().responses.retrieve(made.id)
