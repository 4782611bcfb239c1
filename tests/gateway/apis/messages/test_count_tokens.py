"""POST /v1/messages/count_tokens: exact where the tokenizer is at hand, else an estimate that says so; never a call."""

from typing import Any

import anthropic
import pytest

from tests.backends.llm.engine_fake import FakeHost, builtin_hello

PROMPT: Any = {"model": "m", "messages": [{"role": "user", "content": "one two three"}]}
METHOD = "x-tollkeeper-count-method"


@pytest.fixture
def at_an_upstream(start_gateway, kit, upstream):
    async def start():
        return await start_gateway(kit.configuration(("m", [kit.http_target(upstream.url)])))

    return start


@pytest.fixture
async def exact(start_gateway, kit):
    """A gateway whose one model counts words."""
    return await start_gateway(kit.configuration(("m", [kit.scripted()])))


async def test_a_model_of_ones_own_counts_exactly_what_it_would_read(exact, sdk):
    client = sdk(exact)
    counted = await client.messages.with_raw_response.count_tokens(**PROMPT, system="be very brief")
    message = await client.messages.create(**PROMPT, system="be very brief", max_tokens=1)
    assert (await counted.parse()).input_tokens == message.usage.input_tokens == 6
    assert counted.headers[METHOD] == "exact"


async def test_an_estimate_says_that_it_is_one_and_learns_from_what_is_reported(at_an_upstream, upstream, sdk):
    gateway = await at_an_upstream()
    client = sdk(gateway)
    first = await client.messages.with_raw_response.count_tokens(**PROMPT)
    assert first.headers[METHOD] == "estimate" and (await first.parse()).input_tokens > 1
    assert upstream.requests == [], "nobody is asked"
    upstream.always(upstream.whole(upstream.completion(prompt=200)))
    for _ in range(9):
        await client.messages.create(**PROMPT, max_tokens=5)
    learnt = await client.messages.count_tokens(**PROMPT)
    # The request that is counted is shorter by the limit that it does not state.
    assert 120 < learnt.input_tokens <= 200


async def test_what_one_target_refuses_is_estimated_for_the_one_that_would_answer(
    start_gateway, kit, upstream, tmp_path, eventually, sdk
):
    host = await FakeHost(tmp_path / "h.sock", models=[builtin_hello("m")]).start()
    engine = {"name": "e1", "kind": "engine", "url": host.url}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    asked = {**PROMPT, "messages": [{"role": "user", "content": [image]}]}
    for targets, is_taken in (([engine, kit.http_target(upstream.url)], True), ([engine], False)):
        gateway = await start_gateway(kit.configuration(("m", targets)))
        hosts = gateway.gateway.health
        await eventually(lambda hosts=hosts: all(one["state"] == "ready" for one in hosts()["engines"].values()))
        counts = sdk(gateway).messages.with_raw_response
        assert (await counts.count_tokens(**PROMPT)).headers[METHOD] == "exact"
        if is_taken:
            assert (await counts.count_tokens(**asked)).headers[METHOD] == "estimate"
            continue
        with pytest.raises(anthropic.BadRequestError, match="takes text only"):
            await counts.count_tokens(**asked)
    await host.stop()


async def test_counting_is_no_call_and_leaves_no_record(exact, sdk):
    await sdk(exact).messages.count_tokens(**PROMPT)
    assert exact.records() == []


async def test_only_who_may_ask_the_model_may_count_for_it(exact, sdk):
    with pytest.raises(anthropic.AuthenticationError):
        await sdk(exact, api_key="tk-" + "C" * 43).messages.count_tokens(**PROMPT)
    with pytest.raises(anthropic.NotFoundError) as unknown:
        await sdk(exact).messages.count_tokens(**PROMPT | {"model": "gpt-9"})
    assert unknown.value.type == "not_found_error"


async def test_what_no_message_may_say_is_refused_here_too(exact, sdk):
    with pytest.raises(anthropic.BadRequestError, match="tools\\[0\\].type is 'web_search_20250305'"):
        await sdk(exact).messages.count_tokens(**PROMPT, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    answer = await exact.ask(exact.request(b"{", path="/v1/messages/count_tokens"))
    assert (answer.status, answer.json["type"], answer.json["error"]["type"]) == (400, "error", "invalid_request_error")


async def test_a_conversation_that_ends_with_an_answer_can_be_counted(exact, sdk):
    messages = [*PROMPT["messages"], {"role": "assistant", "content": "four five"}]
    assert (await sdk(exact).messages.count_tokens(model="m", messages=messages)).input_tokens == 5
