"""Text completions by the built-in model through the real host process: raw prompts, exact counts, many at once."""

import asyncio
import json
from typing import Any

import pytest
from tokenizers import Tokenizer

from backends.engine.settings import BUILTIN_PATH
from contracts.metering.gaps import unpack_gaps
from contracts.recording.records import StepRecord
from tests.gateway.host_process import MODEL, HostProcess

PROMPT = "A bridge is a structure"


@pytest.fixture
def host(engine_host: HostProcess) -> HostProcess:
    return engine_host


@pytest.fixture
def start_engine(start_gateway, kit, eventually, host):
    async def start(**more: Any):
        target = {"name": "e1", "kind": "engine", "url": host.url}
        gateway = await start_gateway(kit.configuration((MODEL, [target]), **more))
        await eventually(
            lambda: all(one["state"] == "ready" for one in gateway.gateway.health()["engines"].values()), 60.0
        )
        return gateway

    return start


@pytest.fixture
async def engine(start_engine):
    return await start_engine()


def create(gateway, **fields):
    given: dict[str, Any] = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": 20, **fields}
    return gateway.sdk().completions.create(**given)


def ids_of(text: str) -> list[int]:
    return list(Tokenizer.from_file(str(BUILTIN_PATH / "tokenizer.json")).encode(text).ids)


async def streamed(gateway, **fields) -> tuple[dict[int, str], Any]:
    texts: dict[int, str] = {}
    usage = None
    async for chunk in await create(gateway, stream=True, stream_options={"include_usage": True}, **fields):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    return texts, usage


async def test_a_prompt_is_continued_as_it_stands_and_counted_exactly(engine):
    whole = await create(engine, extra_body={"ignore_eos": True})
    texts, usage = await streamed(engine, extra_body={"ignore_eos": True})
    assert texts == {0: whole.choices[0].text} and len(texts[0]) > 20
    assert whole.usage.prompt_tokens == usage.prompt_tokens == len(ids_of(PROMPT)), "no chat template around it"
    assert whole.usage.completion_tokens == usage.completion_tokens == 20
    assert whole.choices[0].finish_reason == "length"
    for record in engine.requests():
        assert (record.api, record.operation, record.count_method) == ("completions", "text_completion", "exact")
        assert record.engine_output_tokens == 20 == len(unpack_gaps(record.gaps)) + 1
        assert record.gap_clock == "engine" and record.gpu is not None and record.gpu.decode_ns > 0


async def test_token_ids_are_continued_as_their_text_is(engine):
    by_text = await create(engine)
    for given in (ids_of(PROMPT), [ids_of(PROMPT)]):
        by_ids = await create(engine, prompt=given)
        assert by_ids.choices[0].text == by_text.choices[0].text
        assert by_ids.usage.prompt_tokens == by_text.usage.prompt_tokens


async def test_the_default_is_sixteen_tokens_and_the_context_bounds_them(engine):
    answer = await engine.complete(model=MODEL, prompt=PROMPT, ignore_eos=True)
    assert answer.json["usage"]["completion_tokens"] == 16
    context = engine.gateway.targets._targets[MODEL, "e1"]._host.model(MODEL).context_tokens
    for prompt, limit, param in (([5] * context, 1, "prompt"), ([5] * (context - 3), 4, "max_tokens")):
        refused = await engine.complete(model=MODEL, prompt=prompt, max_tokens=limit)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (
            400,
            "context_length_exceeded",
            param,
        )


async def test_many_prompts_are_choices_of_one_answer_with_one_account(engine, eventually):
    prompts = [PROMPT, "Cheese ripens in a cellar", "The river runs"]
    alone = [(await create(engine, prompt=prompt)).choices[0].text for prompt in prompts]
    whole = await create(engine, prompt=prompts, n=2)
    texts, usage = await streamed(engine, prompt=prompts, n=2)
    assert [choice.index for choice in whole.choices] == list(range(6))
    assert [choice.text for choice in whole.choices] == [text for text in alone for _ in range(2)]
    assert texts == {place: choice.text for place, choice in enumerate(whole.choices)}
    assert whole.usage.prompt_tokens == usage.prompt_tokens == sum(len(ids_of(prompt)) for prompt in prompts)
    # The first tokens of a prompt's choices are drawn from one row of one step.
    made = sum(record.usage.output_tokens for record in engine.requests()) - 2 * len(prompts)
    record = engine.requests()[-1]
    assert (record.choices, record.count_method, record.attempts) == (6, "exact", 1)
    assert record.usage.output_tokens == record.engine_output_tokens == usage.completion_tokens
    assert len(unpack_gaps(record.gaps)) == record.usage.output_tokens - 6
    assert record.gpu is not None and record.gpu.decode_ns > 0

    def made_by_the_engine() -> int:
        steps = [one for one in engine.records() if isinstance(one, StepRecord) and one.kind == "step"]
        return sum(len(step.request_ids) for step in steps)

    await eventually(lambda: made_by_the_engine() == made, 3.0)


async def test_logprobs_come_in_the_older_shape_streamed_and_whole(engine):
    whole = await create(engine, logprobs=3, max_tokens=5)
    found = whole.choices[0].logprobs
    assert len(found.tokens) == len(found.token_logprobs) == len(found.text_offset) == len(found.top_logprobs) == 5
    assert "".join(found.tokens) == whole.choices[0].text
    assert found.text_offset == [len("".join(found.tokens[:place])) for place in range(5)]
    for token, logprob, top in zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True):
        assert 3 <= len(top) <= 4 and top[token] == logprob == max(top.values())
    stream = await create(engine, logprobs=3, max_tokens=5, stream=True)
    pieces = [chunk.choices[0].logprobs async for chunk in stream if chunk.choices[0].logprobs]
    assert [token for piece in pieces for token in piece.tokens] == found.tokens
    assert [offset for piece in pieces for offset in piece.text_offset] == found.text_offset
    none = (await create(engine, logprobs=0, max_tokens=5)).choices[0].logprobs
    assert none.top_logprobs is None and none.tokens == found.tokens


async def test_stops_seeds_and_constraints_hold(engine):
    full = (await create(engine)).choices[0].text
    stop = full.split()[3]
    assert (await create(engine, stop=stop)).choices[0].text == full[: full.index(stop)]
    sampled = [await create(engine, temperature=1.0, seed=7, n=3) for _ in range(2)]
    first, second = ([choice.text for choice in answer.choices] for answer in sampled)
    assert first == second and len(set(first)) > 1
    chosen = await create(engine, prompt=["a", "b"], extra_body={"guided_choice": ["arch", "beam"]})
    assert {choice.text for choice in chosen.choices} <= {"arch", "beam"}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "best_of": ({"best_of": 2}, "best_of"),
    "echo": ({"echo": True}, "echo"),
    "suffix": ({"suffix": "!"}, "suffix"),
    "an empty prompt": ({"prompt": ""}, "prompt"),
    "an empty one of several": ({"prompt": ["a", ""]}, "prompt"),
    "an id beyond the vocabulary": ({"prompt": [[1], [4096]]}, "prompt"),
    "a bias beyond the vocabulary": ({"logit_bias": {"999999": 1}}, "prompt"),
    "an empty stop": ({"stop": [""]}, "stop"),
    "beam search": ({"use_beam_search": True}, "use_beam_search"),
    "the prompt's own probabilities": ({"prompt_logprobs": 1}, "prompt_logprobs"),
    "a regex left open": ({"guided_regex": "(a"}, "response_format"),
    "a regex left open, for several": ({"guided_regex": "(a", "prompt": ["a", "b", "c"]}, "response_format"),
    "more at least than at most": ({"min_tokens": 31}, "min_tokens"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_honoured_is_refused_by_name_and_costs_nothing(engine, case):
    fields, param = REFUSED[case]
    answer = await engine.complete(**{"model": MODEL, "prompt": PROMPT, "max_tokens": 30, **fields})
    assert (answer.status, answer.error["param"]) == (400, param), answer.error
    [record] = engine.requests()
    assert record.usage.total_tokens == 0 and record.cost_pico_usd == 0
    harmless = {"best_of": 1, "echo": False, "suffix": "", "prompt_logprobs": None}
    assert (await engine.complete(model=MODEL, prompt=PROMPT, max_tokens=1, **harmless)).status == 200


async def test_all_prompts_are_counted_before_a_limit_admits_any(start_engine):
    limit = {"id": "in", "tenant": "acme", "level": "tenant", "metric": "input_tokens", "window": "minute"}
    tokens = 3 * len(ids_of(PROMPT))
    for amount, status in ((tokens - 1, 429), (tokens, 200), (tokens + 1, 200)):
        gateway = await start_engine(limits=[{**limit, "amount": amount}])
        answer = await gateway.complete(model=MODEL, prompt=[PROMPT] * 3, max_tokens=1)
        assert answer.status == status, amount


async def test_an_answer_that_outgrows_its_limit_ends_in_every_choice_and_is_charged(start_engine):
    limit = {"id": "out", "tenant": "acme", "level": "tenant", "metric": "output_tokens", "window": "minute"}
    gateway = await start_engine(limits=[{**limit, "amount": 300}])
    for _ in range(20):  # from these it learns that answers are short
        await gateway.complete(model=MODEL, prompt=PROMPT, max_tokens=8, temperature=0, stop=" ")
    left = 300 - sum(record.usage.output_tokens for record in gateway.requests())
    prompts = [PROMPT, "The river runs", "Cheese"]
    answer = await gateway.complete(
        model=MODEL, prompt=prompts, max_tokens=300, min_tokens=300, ignore_eos=True, stream=True
    )
    endings = [json.loads(event.removeprefix(b"data: ")) for event in answer.events if b"ended_by" in event]
    assert sorted(ending["choices"][0]["index"] for ending in endings) == [0, 1, 2]
    record = gateway.requests()[-1]
    assert (record.outcome, record.finish_reason, record.limit) == ("ok", "length", "out")
    assert record.count_method == "exact" and left <= record.usage.output_tokens < left + 60
    assert record.usage.output_tokens == record.engine_output_tokens


async def test_a_client_that_leaves_stops_every_prompt_and_is_billed_what_was_made(engine, eventually):
    client = await engine.connect()
    body = {"model": MODEL, "prompt": [PROMPT, "The river runs", "Cheese"], "stream": True, "max_tokens": 700}
    await client.send(engine.request(body, path="/v1/completions", ignore_eos=True, min_tokens=700))
    await client.head()
    pieces = client.pieces()
    for _ in range(60):
        await anext(pieces)
    client.reset()
    await eventually(lambda: engine.requests(), 30.0)
    [record] = engine.requests()
    assert (record.outcome, record.count_method) == ("cancelled", "exact")
    assert 60 <= record.usage.output_tokens <= 2100
    assert record.usage.input_tokens == len(ids_of(PROMPT) + ids_of("The river runs") + ids_of("Cheese"))
    assert record.usage.output_tokens == len(unpack_gaps(record.gaps)) + 3

    def made_by_the_engine() -> int:
        steps = [one for one in engine.records() if isinstance(one, StepRecord) and one.kind == "step"]
        return sum(len(step.request_ids) for step in steps)

    await eventually(lambda: made_by_the_engine() >= record.usage.output_tokens, 30.0)
    await asyncio.sleep(0.1)
    assert made_by_the_engine() == record.usage.output_tokens, "nothing runs on"
