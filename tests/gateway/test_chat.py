"""Chat completions from the application's side: the answer, and the record that is left of it."""

import asyncio
import json
from typing import Any

import openai
import pytest

from contracts.metering.gaps import unpack_gaps

pytestmark = pytest.mark.smoke
MESSAGES: Any = [{"role": "user", "content": "one two three"}]


async def test_a_whole_answer_carries_the_exact_usage_and_leaves_it_on_the_record(gateway):
    answer = await gateway.sdk().chat.completions.create(model="scripted-1", messages=MESSAGES)
    assert answer.choices[0].message.content.startswith("Hello! I am the scripted model.")
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (3, 27, 30)
    [record] = gateway.requests()
    assert (record.outcome, record.status, record.stream) == ("ok", 200, False)
    assert (record.usage.input_tokens, record.usage.output_tokens) == (3, 27)
    assert record.count_method == "exact"
    assert answer.id == f"chatcmpl-{record.request_id.hex()}"


async def test_the_synchronous_sdk_is_served_as_well(gateway):
    def ask():
        with openai.OpenAI(base_url=gateway.base_url, api_key="tk-" + "A" * 43, max_retries=0) as client:
            answer = client.chat.completions.create(model="scripted-1", messages=MESSAGES, max_tokens=2)
            return answer.choices[0].message.content

    assert await asyncio.to_thread(ask) == "Hello! I"


async def test_a_stream_of_n_tokens_leaves_n_minus_1_gaps_and_a_time_to_first_token(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted(tokens=9, first_ms=20, gap_ms=5)])))
    stream = await gateway.sdk().chat.completions.create(model="scripted-1", messages=MESSAGES, stream=True)
    pieces = [chunk.choices[0].delta.content async for chunk in stream]
    assert len([piece for piece in pieces if piece]) == 9
    [record] = gateway.requests()
    assert record.stream and record.usage.output_tokens == 9
    gaps = unpack_gaps(record.gaps)
    assert len(gaps) == 8 and all(gap >= 400 for gap in gaps), gaps  # 10 us units
    assert 20_000_000 <= record.ttft_ns <= record.duration_ns
    assert record.gap_clock == "gateway"


async def test_tokens_of_one_piece_have_gaps_of_zero_between_them(start_gateway, kit):
    script = kit.scripted(tokens=8, burst=4, gap_ms=10)
    gateway = await start_gateway(kit.configuration(("scripted-1", [script])))
    await gateway.chat(stream=True)
    gaps = unpack_gaps(gateway.requests()[0].gaps)
    assert len(gaps) == 7
    assert gaps[:3] == [0, 0, 0] and gaps[4:] == [0, 0, 0] and gaps[3] >= 900


@pytest.mark.parametrize("streamed", [False, True])
async def test_each_of_n_choices_has_its_own_gaps(start_gateway, kit, streamed):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted(tokens=5)])))
    answer = await gateway.chat(n=3, stream=streamed)
    assert answer.status == 200
    [record] = gateway.requests()
    assert (record.usage.output_tokens, len(unpack_gaps(record.gaps)), record.choices) == (15, 12, 3)
    if not streamed:
        texts = [choice["message"]["content"] for choice in answer.json["choices"]]
        assert len(texts) == 3 and len(set(texts)) == 1


@pytest.mark.parametrize(("limit", "tokens", "finish"), [(26, 26, "length"), (27, 27, "stop"), (28, 27, "stop")])
async def test_max_tokens_cuts_below_at_and_above_the_natural_length(gateway, limit, tokens, finish):
    answer = await gateway.sdk().chat.completions.create(model="scripted-1", messages=MESSAGES, max_tokens=limit)
    assert answer.choices[0].finish_reason == finish
    [record] = gateway.requests()
    assert (record.usage.output_tokens, record.finish_reason, record.max_tokens) == (tokens, finish, limit)


async def test_the_usage_chunk_comes_only_when_it_is_asked_for(gateway):
    client = gateway.sdk()
    for wanted in (True, False):
        stream = await client.chat.completions.create(
            model="scripted-1", messages=MESSAGES, stream=True, stream_options={"include_usage": wanted}
        )
        usages = [chunk.usage async for chunk in stream if chunk.usage is not None]
        assert [(usage.prompt_tokens, usage.completion_tokens) for usage in usages] == ([(3, 27)] if wanted else [])


@pytest.mark.parametrize("streamed", [False, True])
async def test_any_script_and_emoji_arrive_unharmed(start_gateway, kit, streamed):
    text = 'Grüße \u65e5\u672c 👩‍👩‍👧 "quoted" \\back \u2028 \u0001end'
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted(reply=text)])))
    answer = await gateway.sdk().chat.completions.create(
        model="scripted-1", messages=[{"role": "user", "content": "👋 wörld"}], stream=streamed
    )
    if streamed:
        got = "".join([chunk.choices[0].delta.content or "" async for chunk in answer])
    else:
        got = answer.choices[0].message.content
    assert got == text
    assert gateway.requests()[0].usage.input_tokens == 2


async def test_who_asked_stands_on_the_record(gateway):
    answer = await gateway.chat(
        user="end-user-7",
        headers={
            "x-tollkeeper-tags": "feature=search, stage = beta",
            "x-tollkeeper-run-id": "run-1",
            "x-tollkeeper-conversation-id": "talk-1",
            "traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01",
        },
    )
    assert answer.status == 200
    [record] = gateway.requests()
    who = record.who
    assert (who.tenant, who.team, who.project, who.key_id, who.user) == (
        "acme",
        "core",
        "apollo",
        "key_1",
        "end-user-7",
    )
    assert who.tags == {"feature": "search", "stage": "beta"}
    assert (record.run_id, record.conversation_id) == ("run-1", "talk-1")
    assert record.trace_id == bytes.fromhex("ab" * 16)
    assert len(record.span_id) == 8 and record.span_id != bytes.fromhex("cd" * 8)


async def test_the_cost_is_exact_to_the_pico_usd(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted(tokens=7, cached=1)]))
    config["prices"] = [
        {
            "model": "scripted-1",
            "version": "odd/3",
            "usd_per_mtok": {"input_text": "0.15", "cache_read_text": "0.075", "output_text": "18.750001"},
        }
    ]
    gateway = await start_gateway(config)
    await gateway.chat()
    [record] = gateway.requests()
    assert record.cost_pico_usd == 2 * 150_000 + 1 * 75_000 + 7 * 18_750_001
    assert (record.cost_basis, record.price_version) == ("price_card", "odd/3")


async def test_a_model_without_a_price_is_unpriced_and_not_free(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), prices=[]))
    await gateway.chat()
    [record] = gateway.requests()
    assert (record.cost_pico_usd, record.cost_basis) == (None, "unpriced")


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_record_is_on_disk_when_the_client_reads_the_last_byte(gateway, streamed):
    client = await gateway.connect()
    for count in range(1, 21):
        await client.send(gateway.request(stream=streamed))
        await client.answer()
        assert len(gateway.requests()) == count  # no await since the last byte


async def test_a_key_sees_and_reaches_only_its_own_models(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted()]), ("org/model-2", [kit.scripted()]))
    other = "tk-" + "B" * 43
    config["keys"].append({"key": other, "tenant": "beta", "models": ["org/model-2"]})
    gateway = await start_gateway(config)
    everything, scoped = gateway.sdk(), gateway.sdk(other)
    assert [model.id async for model in everything.models.list()] == ["scripted-1", "org/model-2"]
    assert [model.id async for model in scoped.models.list()] == ["org/model-2"]
    assert (await scoped.models.retrieve("org/model-2")).id == "org/model-2"
    with pytest.raises(openai.NotFoundError):
        await scoped.models.retrieve("scripted-1")
    with pytest.raises(openai.NotFoundError) as refused:
        await scoped.chat.completions.create(model="scripted-1", messages=MESSAGES)
    assert refused.value.code == "model_not_found"


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_request_id_the_client_sees_is_the_one_on_the_record(gateway, streamed):
    answer = await gateway.chat(stream=streamed)
    [record] = gateway.requests()
    assert answer.headers["x-request-id"].replace("-", "") == record.request_id.hex()


async def test_sizes_on_the_record_are_those_of_the_bodies(gateway, kit):
    answer = await gateway.chat()
    [record] = gateway.requests()
    assert record.request_bytes == len(json.dumps(kit.BODY))
    assert record.response_bytes == len(answer.body)


async def test_a_repeated_stream_differs_in_nothing_but_its_ids(gateway):
    def without_ids(answer):
        events = [json.loads(event[6:]) for event in answer.events if event != b"data: [DONE]"]
        return [{**event, "id": "", "created": 0} for event in events], answer.events[-1]

    first, second = await gateway.chat(stream=True), await gateway.chat(stream=True)
    assert without_ids(first) == without_ids(second)
    assert first.events[-1] == b"data: [DONE]"
