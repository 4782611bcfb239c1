"""POST /v1/messages with Anthropic's SDK: what an application gets, what goes wrong, what is recorded and billed."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import anthropic
import msgspec
import pytest

from contracts.recording.records import RequestRecord

OTHER_KEY = "tk-" + "B" * 43
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}
# What differs between two requests that are otherwise one.
OF_ITS_OWN = {"request_id", "started_at_ns", "duration_ns", "ttft_ns", "admission_ns", "gaps", "wait_ns"}
OF_ITS_BYTES = {"request_bytes", "response_bytes"}


@pytest.fixture
def start(start_gateway, kit):
    """Start a gateway with one model that plays a script."""

    async def start(*, keys=(), limits=(), **script):
        config = kit.configuration(("scripted-1", [kit.scripted(**script)]), limits=list(limits))
        config["keys"] += keys
        return await start_gateway(config)

    return start


async def events_of(client: anthropic.AsyncAnthropic, request: dict[str, Any]) -> list[Any]:
    async with client.messages.stream(**request) as stream:
        return [event async for event in stream]


async def test_a_whole_message_is_what_the_sdk_expects(gateway, sdk, words):
    message = await sdk(gateway).messages.create(**words.MESSAGE, system="four")
    [block] = message.content
    assert block.type == "text" and block.text.startswith("Hello! I am the scripted model.")
    assert (message.role, message.model, message.stop_reason, message.stop_sequence) == (
        "assistant",
        "scripted-1",
        "end_turn",
        None,
    )
    assert (message.usage.input_tokens, message.usage.output_tokens) == (4, 27)
    assert (message.usage.cache_read_input_tokens, message.usage.cache_creation_input_tokens) == (0, None)
    [record] = gateway.requests()
    assert message.id == f"msg_{record.request_id.hex()}"
    assert (record.api, record.operation, record.outcome) == ("messages", "chat", "ok")


async def test_a_stream_is_put_together_by_the_sdk_and_opens_with_the_exact_input(gateway, sdk, words):
    async with sdk(gateway).messages.stream(**words.MESSAGE) as stream:
        events = [event async for event in stream]
        message = await stream.get_final_message()
    start = events[0]
    assert start.type == "message_start" and start.message.usage.input_tokens == 3
    whole = await sdk(gateway).messages.create(**words.MESSAGE)
    assert message.content[0].text == whole.content[0].text == await text_of(sdk(gateway), words.MESSAGE)
    assert (message.usage, message.stop_reason) == (whole.usage, whole.stop_reason)


async def text_of(client: anthropic.AsyncAnthropic, request: dict[str, Any]) -> str:
    async with client.messages.stream(**request) as stream:
        return "".join([piece async for piece in stream.text_stream])


async def test_thoughts_are_shown_to_who_asks_for_them_and_counted_for_everybody(start, sdk, words):
    gateway = await start(reply="I think so. Yes.", reasoning=3)
    request = words.MESSAGE | {"max_tokens": 2000}
    asked = await sdk(gateway).messages.create(**request, thinking=THINKING)
    async with sdk(gateway).messages.stream(**request, thinking=THINKING) as stream:
        streamed = await stream.get_final_message()
    for message in (asked, streamed):
        assert [(block.type, getattr(block, block.type)) for block in message.content] == [
            ("thinking", "I think so."),
            ("text", " Yes."),
        ]
        assert (message.usage.output_tokens, message.usage.output_tokens_details.thinking_tokens) == (4, 3)
    unasked = await sdk(gateway).messages.create(**request)
    omitted: Any = {"type": "adaptive", "display": "omitted"}
    hidden = await sdk(gateway).messages.create(**request, thinking=omitted)
    assert [[block.type for block in message.content] for message in (unasked, hidden)] == [["text"], ["text"]]
    assert unasked.usage.output_tokens == 4
    disabled = await sdk(gateway).messages.create(**request, thinking={"type": "disabled"})
    assert disabled.content[0].text == "I think so. Yes." and disabled.usage.output_tokens_details is None


async def test_the_sdk_without_asyncio_works_too(gateway, kit, words):
    def ask() -> None:
        base_url = gateway.base_url.removesuffix("/v1")
        with anthropic.Anthropic(api_key=kit.KEY, base_url=base_url, max_retries=0) as client:
            whole = client.messages.create(**words.MESSAGE)
            with client.messages.stream(**words.MESSAGE) as stream:
                assert stream.get_final_text() == whole.content[0].text
            assert client.messages.count_tokens(**prompt(words)).input_tokens == 3

    await asyncio.to_thread(ask)


async def test_a_message_and_the_equal_chat_have_one_record_and_one_bill(gateway, sdk, words, kit):
    fields = {"temperature": 0.5, "max_tokens": 9}
    await gateway.chat(**fields, user="u-1", messages=[{"role": "system", "content": "be brief"}, words.USER])
    request = words.MESSAGE | {
        "system": "be brief",
        "metadata": {"user_id": "u-1"},
        "max_tokens": 9,
        "extra_body": fields,
    }
    await sdk(gateway).messages.create(**request)
    await gateway.chat(
        **fields, user="u-1", stream=True, messages=[{"role": "system", "content": "be brief"}, words.USER]
    )
    await text_of(sdk(gateway), request)
    chat, message, streamed_chat, streamed_message = gateway.requests()
    for one, other in ((chat, message), (streamed_chat, streamed_message)):
        assert differences(one, other) == {"api"}
    assert message.cost_pico_usd == 5 * 1_000_000 + 9 * 2_000_000
    assert (message.who.user, message.finish_reason) == ("u-1", "length")


def differences(one: RequestRecord, other: RequestRecord) -> set[str]:
    left, right = msgspec.structs.asdict(one), msgspec.structs.asdict(other)
    return {name for name in left if left[name] != right[name]} - OF_ITS_OWN - OF_ITS_BYTES


async def test_a_cut_answer_is_billed_for_what_was_made(start, sdk, words, eventually):
    gateway = await start(tokens=1000, gap_ms=2)
    async with sdk(gateway).messages.stream(**words.MESSAGE | {"max_tokens": 1000}) as stream:
        async for event in stream:
            if event.type == "content_block_delta":
                break
    await eventually(lambda: gateway.requests())
    [record] = gateway.requests()
    assert (record.outcome, record.api) == ("cancelled", "messages")
    assert 1 <= record.usage.output_tokens < 1000 and record.usage.input_tokens == 3


async def test_an_answer_that_the_gateway_ends_says_so_where_it_ends(start, sdk, words):
    keys = [{"key": OTHER_KEY, "tenant": "acme", "id": "key_2", "max_thinking_tokens": 40}]
    gateway = await start(keys=keys, tokens=500, reasoning=400)
    client = sdk(gateway, api_key=OTHER_KEY)
    events = await events_of(client, words.MESSAGE | {"max_tokens": 2000, "thinking": THINKING})
    [end] = [event for event in events if event.type == "message_delta"]
    assert (end.delta.stop_reason, end.usage.output_tokens) == ("max_tokens", 41)
    assert end.tollkeeper["ended_by"]["code"] == "thinking_tokens_exceeded"
    assert events[-1].type == "message_stop"
    [record] = gateway.requests()
    assert (record.outcome, record.finish_reason, record.usage.output_reasoning) == ("ok", "length", 41)


async def test_an_answer_as_long_as_it_may_be_ends_for_that(gateway, sdk, words):
    message = await sdk(gateway).messages.create(**words.MESSAGE | {"max_tokens": 5})
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 5)


# What goes wrong.


async def test_errors_are_the_exceptions_that_the_sdk_has_for_them(gateway, sdk, words):
    client = sdk(gateway)
    with pytest.raises(anthropic.BadRequestError) as refused:
        await client.messages.create(**words.MESSAGE, extra_body={"temperature": 2})
    with pytest.raises(anthropic.AuthenticationError) as unknown:
        await sdk(gateway, api_key="tk-" + "C" * 43).messages.create(**words.MESSAGE)
    with pytest.raises(anthropic.NotFoundError) as missing:
        await client.messages.create(**words.MESSAGE | {"model": "gpt-9"})
    found = [refused.value, unknown.value, missing.value]
    assert [(error.type, error.error_code) for error in found] == [
        ("invalid_request_error", "invalid_request"),
        ("authentication_error", "invalid_api_key"),
        ("not_found_error", "model_not_found"),
    ]
    assert "temperature is 2: expected float <= 1" in str(refused.value)
    body: Any = refused.value.body
    assert body["type"] == "error" and set(body["error"]) == {"type", "message", "details"}
    assert body["request_id"] == refused.value.request_id == refused.value.response.headers["x-request-id"]
    [rejected, not_found] = gateway.requests()
    assert (rejected.outcome, rejected.status, rejected.api) == ("rejected", 400, "messages")
    assert not_found.error_code == "model_not_found"


async def test_a_key_may_be_held_to_other_endpoints_or_to_this_one(start, sdk, words):
    keys = [
        {"key": OTHER_KEY, "tenant": "acme", "id": "key_2", "endpoints": ["chat.completions"]},
        {"key": "tk-" + "D" * 43, "tenant": "acme", "id": "key_3", "endpoints": ["messages"]},
    ]
    gateway = await start(keys=keys)
    chats, messages = sdk(gateway, api_key=OTHER_KEY), sdk(gateway, api_key="tk-" + "D" * 43)
    for ask in (chats.messages.create(**words.MESSAGE), chats.messages.count_tokens(**prompt(words))):
        with pytest.raises(anthropic.PermissionDeniedError, match="may not use messages") as denied:
            await ask
        assert denied.value.type == "permission_error"
    assert (await messages.messages.create(**words.MESSAGE)).content
    assert (await messages.messages.count_tokens(**prompt(words))).input_tokens == 3


def prompt(words) -> dict[str, Any]:
    return {"model": "scripted-1", "messages": [words.USER]}


@pytest.mark.parametrize(
    "credentials", [{"api_key": "tk-" + "A" * 43}, {"api_key": None, "auth_token": "tk-" + "A" * 43}]
)
async def test_a_key_may_come_in_either_header(gateway, sdk, words, credentials):
    assert (await sdk(gateway, **credentials).messages.create(**words.MESSAGE)).content
    [record] = gateway.requests()
    assert record.who.key_id == "key_1"


@pytest.mark.parametrize(
    ("fault", "status", "kind", "exception"),
    [
        ("error", 502, "api_error", anthropic.InternalServerError),
        ("refuse", 502, "api_error", anthropic.InternalServerError),
    ],
)
async def test_a_failing_target_is_an_error_of_the_api(start, sdk, words, fault, status, kind, exception):
    gateway = await start(fault=fault)
    with pytest.raises(exception) as failed:
        await sdk(gateway).messages.create(**words.MESSAGE)
    assert (failed.value.status_code, failed.value.type) == (status, kind)


async def test_a_stream_that_breaks_ends_with_an_error_event_and_no_end_of_a_message(start, sdk, words):
    gateway = await start(fault="break", after=3)
    events = []
    with pytest.raises(anthropic.APIStatusError) as broken:
        async with sdk(gateway).messages.stream(**words.MESSAGE) as stream:
            async for event in stream:
                events.append(event)
    assert broken.value.type == "api_error" and broken.value.error_code == "upstream_broken"
    body: Any = broken.value.body
    assert body["request_id"].replace("-", "") == events[0].message.id.removeprefix("msg_")
    assert "message_stop" not in [event.type for event in events]
    [record] = gateway.requests()
    assert (record.outcome, record.usage.output_tokens) == ("error", 3)


async def test_a_server_that_is_full_is_overloaded_in_the_status_that_the_sdk_knows(start_gateway, kit, sdk, words):
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(config, max_concurrent=1)
    client = await gateway.connect()
    slow = [{"role": "user", "content": "[[script tokens=50 gap_ms=40]]"}]
    await client.send(gateway.request(messages=slow, stream=True))
    await client.head()
    with pytest.raises(anthropic.OverloadedError) as full:
        await sdk(gateway).messages.create(**words.MESSAGE)
    assert (full.value.status_code, full.value.type) == (529, "overloaded_error")
    client.reset()


async def test_a_limit_is_told_in_both_apis_words(start, sdk, words):
    rule = {"tenant": "acme", "level": "tenant", "window": "minute"}
    limits = [
        rule | {"id": "requests", "metric": "requests", "amount": 2},
        rule | {"id": "tokens", "metric": "tokens", "amount": 10_000},
    ]
    gateway = await start(limits=limits)
    before = datetime.now(UTC)
    raw = await sdk(gateway).messages.with_raw_response.create(**words.MESSAGE)
    headers = raw.headers
    assert headers["request-id"] == headers["x-request-id"]
    for kind in ("requests", "tokens"):
        for what in ("limit", "remaining"):
            assert headers[f"anthropic-ratelimit-{kind}-{what}"] == headers[f"x-ratelimit-{what}-{kind}"]
        reset = datetime.fromisoformat(headers[f"anthropic-ratelimit-{kind}-reset"])
        assert before <= reset <= before + timedelta(seconds=75)
    assert headers["anthropic-ratelimit-requests-remaining"] == "1"
    async with sdk(gateway).messages.stream(**words.MESSAGE) as stream:
        assert stream.response.headers["anthropic-ratelimit-requests-remaining"] == "0"
        await stream.get_final_message()
    with pytest.raises(anthropic.RateLimitError) as limited:
        await sdk(gateway).messages.create(**words.MESSAGE)
    assert (limited.value.type, limited.value.error_code) == ("rate_limit_error", "rate_limit_exceeded")
    assert limited.value.response.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert int(limited.value.response.headers["retry-after"]) > 0


async def test_another_method_and_another_path_are_refused_in_this_apis_shape(gateway):
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        answer = await gateway.ask(gateway.request(path=path).replace(b"POST", b"GET", 1))
        assert answer.status == 405 and answer.headers["allow"] == "post"
        assert answer.json["error"]["type"] == "invalid_request_error"


async def test_versions_and_betas_are_taken_and_mean_nothing(gateway, sdk, words):
    client = sdk(gateway, default_headers={"anthropic-version": "2099-01-01", "anthropic-beta": "x-2026"})
    raw = await client.messages.with_raw_response.create(**words.MESSAGE)
    assert not [name for name in raw.headers if "version" in name and name.startswith("anthropic")]
    assert (await client.beta.messages.create(**words.MESSAGE, betas=["y-2026"])).content


async def test_an_images_bytes_are_not_taken_for_text_when_they_are_estimated(gateway, sdk, words):
    """A limit on tokens is charged by the size of the prompt until a target has counted it."""
    image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 400_000}}
    answer = await gateway.chat(
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image['source']['data']}"}}
                ],
            }
        ]
    )
    assert answer.status == 200
    await sdk(gateway).messages.create(**words.MESSAGE | {"messages": [{"role": "user", "content": [image]}]})
    chat, message = gateway.requests()
    assert differences(chat, message) <= {"api", "max_tokens"}
    assert message.request_bytes > 400_000, "the size is that of what was sent"
