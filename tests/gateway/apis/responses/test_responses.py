"""POST /v1/responses through the gateway with OpenAI's SDK: whole and streamed, what it says and what it costs."""

import asyncio
import json

import openai
import pytest
from pydantic import BaseModel

from contracts.recording.records import RequestRecord

MODEL = "scripted-1"
REPLY = "Hello there, how are you?"


@pytest.fixture
async def gateway(start_gateway, kit):
    """A data plane with one scripted model that thinks for two words."""
    return await start_gateway(kit.configuration((MODEL, [kit.scripted(reply=REPLY, reasoning=2)])))


# Of one request alone: its id and times, the API it came by, and how many bytes that takes.
OF_ONE_REQUEST = {"request_id", "started_at_ns", "duration_ns", "ttft_ns", "admission_ns", "gaps"} | {
    "api",
    "request_bytes",
    "response_bytes",
}


def facts_of(record: RequestRecord) -> dict[str, object]:
    """What two requests for the same have in common."""
    return {name: getattr(record, name) for name in record.__struct_fields__ if name not in OF_ONE_REQUEST}


async def test_a_response_says_what_was_asked_and_answered(gateway):
    response = await gateway.sdk().responses.create(
        model=MODEL,
        input="one two three",
        instructions="be brief",
        max_output_tokens=100,
        temperature=0.5,
        top_p=0.9,
        metadata={"case": "7"},
        user="u1",
        text={"verbosity": "low"},
    )
    assert response.object == "response" and response.status == "completed" and response.error is None
    assert response.id.startswith("resp_") and response.created_at <= response.completed_at
    assert response.output_text == " how are you?".lstrip() or response.output_text == " how are you?"
    reasoning, message = response.output
    assert reasoning.type == "reasoning" and reasoning.content[0].text == "Hello there,"
    assert message.type == "message" and message.role == "assistant" and message.status == "completed"
    assert response.usage.input_tokens == 5 and response.usage.output_tokens == 5
    assert response.usage.output_tokens_details.reasoning_tokens == 2 and response.usage.total_tokens == 10
    assert (response.instructions, response.max_output_tokens, response.temperature) == ("be brief", 100, 0.5)
    assert response.metadata == {"case": "7"} and response.model == MODEL and response.user == "u1"
    assert response.tool_choice == "auto" and response.tools == [] and response.parallel_tool_calls is True
    assert response.text.format.type == "text" and response.text.verbosity == "low"


async def test_a_stream_ends_with_what_a_whole_answer_says(gateway):
    whole = await gateway.sdk().responses.create(model=MODEL, input="one two three")
    events = [
        event async for event in await gateway.sdk().responses.create(model=MODEL, input="one two three", stream=True)
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type == "response.completed"
    changing = {"id", "created_at", "completed_at", "output"}
    assert last.response.model_dump(exclude=changing) == whole.model_dump(exclude=changing)
    without_ids = [item.model_dump(exclude={"id"}) for item in whole.output]
    assert [item.model_dump(exclude={"id"}) for item in last.response.output] == without_ids


async def test_a_streams_events_come_in_openais_order(gateway):
    stream = await gateway.sdk().responses.create(model=MODEL, input="one two three", stream=True)
    events = [event async for event in stream]
    kinds = [event.type for event in events]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    done = next(event for event in events if event.type == "response.output_text.done")
    assert said == done.text == events[-1].response.output_text
    item = next(event.item for event in events if event.type == "response.output_item.done" and event.output_index == 1)
    assert item == events[-1].response.output[1]


async def test_the_sdks_stream_helper_gives_the_final_response(gateway):
    async with gateway.sdk().responses.stream(model=MODEL, input="one two three") as stream:
        deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    assert final.output_text == "".join(deltas) and final.status == "completed"


async def test_the_sync_sdk_is_served_as_well(gateway):
    def ask() -> tuple[str, str, str, list[str]]:
        with openai.OpenAI(base_url=gateway.base_url, api_key=gateway.sdk().api_key, max_retries=0) as client:
            response = client.responses.create(model=MODEL, input="one two three")
            again = client.responses.retrieve(response.id)
            with client.responses.stream(model=MODEL, input="one two three", store=False) as stream:
                for _ in stream:
                    pass
                streamed = stream.get_final_response()
            items = [item.id for item in client.responses.input_items.list(response.id)]
            client.responses.delete(response.id)
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve(response.id)
            return response.output_text, again.output_text, streamed.output_text, items

    first, again, streamed, items = await asyncio.to_thread(ask)
    assert first == again == streamed and len(items) == 1


async def test_a_response_costs_and_records_what_the_equal_chat_does(gateway):
    sdk = gateway.sdk()
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one two three"}]
    for stream in (False, True):
        given = {"model": MODEL, "temperature": 0.5, "user": "u1", "stream": stream}
        chat = await sdk.chat.completions.create(messages=messages, max_tokens=4, **given)
        response = await sdk.responses.create(
            input="one two three", instructions="be brief", max_output_tokens=4, store=False, **given
        )
        for answer in (chat, response) if stream else ():
            async for _ in answer:
                pass
        of_chat, of_response = gateway.requests()[-2:]
        assert facts_of(of_chat) == facts_of(of_response)
        assert of_response.usage.output_text == 2 and of_response.cost_pico_usd
        assert of_response.api == "responses"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_runs_out_of_tokens_is_incomplete(gateway, stream):
    response = await gateway.sdk().responses.create(model=MODEL, input="one", max_output_tokens=3, stream=stream)
    if stream:
        last = [event async for event in response][-1]
        assert last.type == "response.incomplete"
        response = last.response
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    assert response.output[-1].status == "incomplete" and response.completed_at is None
    assert response.usage.output_tokens == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_a_limit_cuts_is_incomplete_and_says_why(start_gateway, kit, stream):
    tokens = {"tenant": "acme", "level": "tenant", "metric": "output_tokens", "window": "minute"}
    limits = [tokens | {"id": "out", "amount": 700}]
    config = kit.configuration((MODEL, [kit.scripted(tokens=1000)]), limits=limits)
    gateway = await start_gateway(config)
    await gateway.sdk().responses.create(model=MODEL, input="one", max_output_tokens=100)
    response = await gateway.sdk().responses.create(model=MODEL, input="one", stream=stream)
    if stream:
        last = [event async for event in response][-1]
        assert last.type == "response.incomplete"
        response = last.response
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 600 and response.output[0].status == "incomplete"
    assert "out" in response.to_dict()["tollkeeper"]["ended_by"]["message"]


async def test_a_stream_that_fails_on_its_way_ends_with_response_failed(start_gateway, kit):
    gateway = await start_gateway(kit.configuration((MODEL, [kit.scripted(fault="break", after=3)])))
    stream = await gateway.sdk().responses.create(model=MODEL, input="one", stream=True)
    events = [event async for event in stream]
    failed = events[-1]
    assert failed.type == "response.failed" and failed.sequence_number == len(events) - 1
    assert failed.response.status == "failed" and failed.response.error.code == "server_error"
    assert "ended early" in failed.response.error.message and failed.response.store is False
    assert failed.response.output[0].content[0].text.startswith("Hello!")
    with pytest.raises(openai.NotFoundError):
        await gateway.sdk().responses.retrieve(failed.response.id)


async def test_a_failure_before_the_first_token_is_an_error_with_a_status(start_gateway, kit):
    gateway = await start_gateway(kit.configuration((MODEL, [kit.scripted(fault="error")])))
    with pytest.raises(openai.InternalServerError, match="failed to answer"):
        await gateway.sdk().responses.create(model=MODEL, input="one", stream=True)


async def test_no_byte_of_the_stream_is_a_chats(gateway):
    answer = await gateway.ask(gateway.request({"model": MODEL, "input": "one", "stream": True}, path="/v1/responses"))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert b"[DONE]" not in answer.body and b"chat.completion" not in answer.body
    for event in answer.events:
        name, data = event.split(b"\n", 1)
        assert name.removeprefix(b"event: ").decode() == json.loads(data.removeprefix(b"data: "))["type"]


async def test_structured_output_is_parsed_by_the_sdk(start_gateway, kit):
    class Size(BaseModel):
        size: int

    gateway = await start_gateway(kit.configuration((MODEL, [kit.scripted(reply='{"size": 3}')])))
    response = await gateway.sdk().responses.parse(model=MODEL, input="how large?", text_format=Size)
    assert response.output_parsed == Size(size=3)
    assert response.text.format.name == "Size"
    assert gateway.requests()[-1].schema_failed is False


async def test_a_key_may_be_held_to_other_endpoints(start_gateway, kit):
    config = kit.configuration((MODEL, [kit.scripted()]))
    config["keys"][0]["endpoints"] = ["chat.completions"]
    gateway = await start_gateway(config)
    for call in (
        gateway.sdk().responses.create(model=MODEL, input="one"),
        gateway.sdk().responses.retrieve("resp_" + "0" * 32),
    ):
        with pytest.raises(openai.PermissionDeniedError, match="responses"):
            await call
