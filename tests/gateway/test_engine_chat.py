"""The built-in model behind the gateway, through the real host process: what applications get, and what they pay."""

import asyncio
import base64
import json
import struct
import time
from typing import Any

import openai
import pytest
from tokenizers import Tokenizer

from backends.engine.settings import BUILTIN_PATH
from contracts.metering.gaps import unpack_gaps
from contracts.recording.records import StepRecord
from tests.gateway.host_process import MODEL, HostProcess

HELLO: Any = [{"role": "user", "content": "What is a bridge?"}]


@pytest.fixture
def host(engine_host: HostProcess) -> HostProcess:
    return engine_host


def target(host: HostProcess, name: str) -> dict[str, object]:
    return {"name": name, "kind": "engine", "url": host.url}


@pytest.fixture
def start_with(start_gateway, kit, eventually):
    async def start(*hosts: HostProcess):
        targets = [target(host, f"e{number}") for number, host in enumerate(hosts, start=1)]
        embedders = [target(hosts[0], "e1")]
        gateway = await start_gateway(kit.configuration((MODEL, targets), ("minilm-l6-v2", embedders)))

        def is_ready() -> bool:
            engines = gateway.gateway.health()["engines"]
            return len(engines) == len(hosts) and all(host["state"] == "ready" for host in engines.values())

        await eventually(is_ready, 60.0)
        return gateway

    return start


@pytest.fixture
async def engine(start_with, host):
    return await start_with(host)


def create(gateway, **fields):
    given: dict[str, Any] = {"model": MODEL, "messages": HELLO, "temperature": 0, "max_tokens": 30, **fields}
    return gateway.sdk().chat.completions.create(**given)


def count(text: str) -> int:
    tokenizer = Tokenizer.from_file(str(BUILTIN_PATH / "tokenizer.json"))
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


async def test_a_stream_says_what_a_whole_answer_says_and_both_are_counted_exactly(engine):
    whole = await create(engine)
    stream = await create(engine, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content and len(text) > 20
    prompt = count("<|begin|><|user|>What is a bridge?<|end|><|assistant|>")
    assert whole.usage.prompt_tokens == chunks[-1].usage.prompt_tokens == prompt
    assert (
        whole.usage.completion_tokens
        == chunks[-1].usage.completion_tokens
        == count(text)
        + (
            whole.choices[0].finish_reason == "stop"  # the end's own token
        )
    )
    for record in engine.requests():
        assert record.count_method == "exact" and record.gap_clock == "engine"
        assert record.engine_output_tokens == record.usage.output_tokens == len(unpack_gaps(record.gaps)) + 1
        assert record.gpu is not None and record.gpu.decode_ns > 0 and record.queue_ns is not None
        assert record.model_version == MODEL and record.provider == "engine"


async def test_a_seed_reproduces_and_choices_differ(engine):
    sampled = [await create(engine, temperature=1.0, seed=7, n=3) for _ in range(2)]
    first, second = ([choice.message.content for choice in answer.choices] for answer in sampled)
    assert first == second and len(set(first)) > 1
    assert engine.requests()[0].choices == 3


async def test_logprobs_come_in_openais_shape_streamed_and_whole(engine):
    whole = await create(engine, logprobs=True, top_logprobs=3, max_tokens=5)
    stream = await create(engine, logprobs=True, top_logprobs=3, max_tokens=5, stream=True)
    content = whole.choices[0].logprobs.content
    assert len(content) == 5 and all(len(token.top_logprobs) == 3 for token in content)
    assert "".join(token.token for token in content) == whole.choices[0].message.content
    assert all(token.logprob <= 0 and bytes(token.bytes).decode() == token.token for token in content)
    streamed = [
        token
        async for chunk in stream
        if chunk.choices and chunk.choices[0].logprobs
        for token in chunk.choices[0].logprobs.content
    ]
    # Batched and single steps may round differently in the last place.
    assert [token.token for token in streamed] == [token.token for token in content]


SCHEMA = {
    "type": "object",
    "properties": {"size": {"type": "integer", "minimum": 0, "maximum": 99}, "kind": {"enum": ["arch", "beam"]}},
    "required": ["size", "kind"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "stated",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "bridge", "schema": SCHEMA}}},
        {"extra_body": {"guided_json": SCHEMA}},
        {"extra_body": {"structured_outputs": {"json": json.dumps(SCHEMA)}}},
    ],
    ids=["response_format", "guided_json", "structured_outputs"],
)
async def test_an_answer_matches_its_schema(engine, stated):
    answer = await create(engine, max_tokens=100, **stated)
    found = json.loads(answer.choices[0].message.content)
    assert set(found) == {"size", "kind"} and 0 <= found["size"] <= 99 and found["kind"] in ("arch", "beam")
    assert answer.choices[0].finish_reason == "stop"


async def test_other_constraints_hold_as_well(engine):
    whole = await create(engine, response_format={"type": "json_object"}, max_tokens=200, seed=1)
    assert whole.choices[0].message.content.startswith("{")
    for extra in ({"guided_regex": "(yes|no){2}"}, {"structured_outputs": {"regex": "(yes|no){2}"}}):
        answer = await create(engine, extra_body=extra)
        assert answer.choices[0].message.content in ("yesyes", "yesno", "noyes", "nono")
    answer = await create(engine, extra_body={"guided_choice": ["stone", "steel"]})
    assert answer.choices[0].message.content in ("stone", "steel")


async def test_lengths_can_be_forced_as_a_replay_does(engine):
    answer = await create(engine, max_tokens=64, extra_body={"ignore_eos": True, "min_tokens": 64})
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (64, "length")


async def test_stop_strings_and_biases_reach_the_engine(engine):
    free = (await create(engine)).choices[0].message.content
    word = free.split()[3]
    stopped = await create(engine, stop=[word])
    assert stopped.choices[0].message.content == free[: free.index(word)]
    assert stopped.choices[0].finish_reason == "stop"
    hello = Tokenizer.from_file(str(BUILTIN_PATH / "tokenizer.json")).encode(" zinc", add_special_tokens=False).ids[0]
    biased = await create(engine, max_tokens=1, logit_bias={str(hello): 100})
    unbiased = await create(engine, max_tokens=1)
    assert biased.choices[0].message.content != unbiased.choices[0].message.content


async def test_a_prompt_seen_before_is_read_from_the_cache_and_stands_in_its_own_leaf(engine):
    messages: Any = [{"role": "user", "content": "Tell me of bridges and roads. " * 60}]
    first, second = [await create(engine, messages=messages, max_tokens=2) for _ in range(2)]
    assert second.usage.prompt_tokens == first.usage.prompt_tokens > 300
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert second.usage.prompt_tokens_details.cached_tokens > 256
    record = engine.requests()[-1]
    assert record.usage.cache_read_text == second.usage.prompt_tokens_details.cached_tokens
    assert record.usage.input_tokens == second.usage.prompt_tokens


async def test_the_context_holds_prompt_and_answer_together(engine):
    text = "bridge " * 3000
    prompt = count(f"<|begin|><|user|>{text}<|end|><|assistant|>")
    messages: Any = [{"role": "user", "content": text}]
    room = 8192 - prompt
    with pytest.raises(openai.BadRequestError) as above:
        await create(engine, messages=messages, max_tokens=room + 1)
    error: Any = above.value.body
    assert error["code"] == "context_length_exceeded" and error["param"] == "max_tokens"
    assert all(str(number) in error["message"] for number in (prompt, room + 1, 8192))
    record = engine.requests()[-1]
    assert (record.outcome, record.usage.total_tokens, record.cost_pico_usd) == ("error", 0, 0)
    fits = await create(engine, messages=messages, max_tokens=min(room, 2))
    assert fits.usage.prompt_tokens == prompt
    with pytest.raises(openai.BadRequestError) as no_room:
        await create(engine, messages=[{"role": "user", "content": "bridge " * 9000}], max_tokens=None)
    assert no_room.value.param == "messages" and "max_tokens is not given" in str(no_room.value)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an image": (
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}
            ]
        },
        "messages[0].content[0].type",
    ),
    "one call alone": (
        {"tools": [{"type": "function", "function": {"name": "f"}}], "parallel_tool_calls": False},
        "parallel_tool_calls",
    ),
    "a forced tool": ({"tool_choice": "required"}, "tool_choice"),
    "functions of old": ({"functions": [{"name": "f"}]}, "functions"),
    "beam search": ({"use_beam_search": True}, "use_beam_search"),
    "a bias of a word": ({"logit_bias": {"bridge": 1}}, "logit_bias"),
    "a bias beyond the vocabulary": ({"logit_bias": {"999999": 1}}, "messages"),
    "alternatives without logprobs": ({"top_logprobs": 2}, "top_logprobs"),
    "an empty stop": ({"stop": [""]}, "stop"),
    "more at least than at most": ({"min_tokens": 31}, "min_tokens"),
    "two constraints": ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
    "an unknown format": ({"response_format": {"type": "xml"}}, "response_format"),
    "a schema of no type": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "thing"}}}},
        "response_format",
    ),
    "too large a grammar": ({"guided_json": {"enum": ["a" * (1 << 20)]}}, "guided_json"),
    "a grammar of too many alternatives": (
        {"structured_outputs": {"grammar": "start: " + "|".join(f'"w{number}"' for number in range(6000))}},
        "response_format",
    ),
    "a regex left open": ({"guided_regex": "(a"}, "response_format"),
    "a template's own variable": ({"chat_template_kwargs": {"messages": "x"}}, "chat_template_kwargs"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_honoured_is_refused_by_name_and_costs_nothing(engine, case):
    fields, param = REFUSED[case]
    answer = await engine.chat(**{"model": MODEL, "messages": HELLO, "max_tokens": 30, **fields})
    assert (answer.status, answer.error["param"]) == (400, param), answer.error
    assert answer.error["type"] == "invalid_request_error"
    [record] = engine.requests()
    assert record.usage.total_tokens == 0 and record.cost_pico_usd == 0


@pytest.mark.parametrize("read", [200, *(pytest.param(read, marks=pytest.mark.drill) for read in (1000, 1800))])
async def test_a_client_that_leaves_on_the_way_is_billed_what_the_engine_made(engine, eventually, read):
    tokens = 8000  # the engine runs ahead of a client that reads: what is left takes it seconds, whatever the load
    client = await engine.connect()
    fields = {"model": MODEL, "messages": HELLO, "stream": True, "max_tokens": tokens, "ignore_eos": True}
    await client.send(engine.request(min_tokens=tokens, **fields))
    await client.head()
    pieces = client.pieces()
    for _ in range(read):
        await anext(pieces)
    client.reset()
    await eventually(lambda: engine.requests(), 30.0)
    [record] = engine.requests()
    assert (record.outcome, record.count_method) == ("cancelled", "exact")
    assert read <= record.usage.output_tokens < tokens
    assert record.usage.output_tokens == len(unpack_gaps(record.gaps)) + 1

    def made_by_the_engine() -> int:
        steps = [one for one in engine.records() if isinstance(one, StepRecord) and one.kind == "step"]
        return sum(step.request_ids.count(record.request_id) for step in steps)

    await eventually(lambda: made_by_the_engine() >= record.usage.output_tokens, 30.0)
    await asyncio.sleep(0.1)
    assert made_by_the_engine() == record.usage.output_tokens  # one step computed the prompt and the first token


@pytest.mark.drill
async def test_a_host_killed_in_the_middle_is_continued_as_if_nothing_had_happened(
    start_with, host, tmp_path, eventually
):
    doomed = HostProcess(tmp_path / "doomed", embedder=False)
    try:
        gateway = await start_with(doomed, host)
        told = {"max_tokens": 300, "extra_body": {"ignore_eos": True, "min_tokens": 300}}
        stream = await create(gateway, stream=True, **told)
        text = ""
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if doomed.process.returncode is None and len(text) > 80:
                doomed.kill()
        uninterrupted = await create(gateway, **told)
        assert text == uninterrupted.choices[0].message.content
        first, second = gateway.attempts()[:2]
        assert (first.outcome, second.reason, second.outcome) == ("error", "continuation", "ok")
        record = gateway.requests()[0]
        assert (record.outcome, record.usage.output_tokens) == ("ok", 300)
        assert first.usage.output_tokens + second.usage.output_tokens == 300
        assert len(unpack_gaps(record.gaps)) == 299
    finally:
        doomed.kill()


async def test_documents_are_ranked_by_what_they_mean(engine):
    documents = ["Cheese ripens in a cellar.", "A span over water.", "A bridge spans a river."]
    body = {"model": "minilm-l6-v2", "query": "A bridge spans a river.", "documents": documents}
    ranked = (await engine.ask(engine.request(body, path="/v1/rerank"))).json
    assert [result["index"] for result in ranked["results"]] == [2, 1, 0]
    assert ranked["results"][0]["relevance_score"] == 1.0
    scores = {"model": "minilm-l6-v2", "text_1": body["query"], "text_2": documents}
    scored = (await engine.ask(engine.request(scores, path="/v1/score"))).json
    by_place = {result["index"]: result["relevance_score"] for result in ranked["results"]}
    assert [item["score"] for item in scored["data"]] == pytest.approx([by_place[place] for place in range(3)])
    vectors = await engine.sdk().embeddings.create(model="minilm-l6-v2", input=documents, encoding_format="float")
    first, second, third = (item.embedding for item in vectors.data)
    assert scored["data"][1]["score"] == pytest.approx(sum(a * b for a, b in zip(second, third, strict=True)), abs=1e-5)
    ranking, scoring, embedding = engine.requests()
    assert (
        ranking.usage == scoring.usage == embedding.usage
        and ranking.usage.input_text == ranked["usage"]["total_tokens"]
    )
    assert ranking.gpu is not None and ranking.cost_pico_usd == embedding.cost_pico_usd


async def test_embeddings_are_the_same_as_numbers_and_as_base64(engine):
    client = engine.sdk()
    texts = ["A bridge spans a river.", "A span over water.", "Cheese ripens in a cellar."]
    plain = await client.embeddings.create(model="minilm-l6-v2", input=texts, encoding_format="float")
    packed = await engine.ask(embedding_request({"model": "minilm-l6-v2", "input": texts, "encoding_format": "base64"}))
    vectors = [item.embedding for item in plain.data]
    decoded = [struct.unpack("<384f", base64.b64decode(item["embedding"])) for item in packed.json["data"]]
    assert [len(vector) for vector in vectors] == [384] * 3
    assert all(
        abs(a - b) < 1e-6 for one, other in zip(vectors, decoded, strict=True) for a, b in zip(one, other, strict=True)
    )

    def likeness(one: int, other: int) -> float:
        return float(sum(a * b for a, b in zip(vectors[one], vectors[other], strict=True)))

    assert likeness(0, 1) > likeness(0, 2) + 0.2
    record = engine.requests()[-1]
    assert (record.operation, record.usage.output_tokens, record.gap_clock) == ("embeddings", None, "none")
    assert record.cost_pico_usd == record.usage.input_tokens * 1_000_000


def embedding_request(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer tk-{'A' * 43}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def test_token_ids_are_embedded_as_their_text_is(engine):
    client = engine.sdk()
    ids = [101, 7592, 102]  # [CLS] hello [SEP]
    by_text = (await client.embeddings.create(model="minilm-l6-v2", input="hello")).data[0].embedding
    for given in (ids, [ids]):
        by_ids = await client.embeddings.create(model="minilm-l6-v2", input=given)
        assert by_ids.data[0].embedding == pytest.approx(by_text, abs=1e-5)
        assert by_ids.usage.prompt_tokens == 3


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": ["ok", "word " * 3000]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a" * 100_000}, "input"),  # one word, which is one token
        ({"input": "a", "dimensions": 385}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ],
)
async def test_what_cannot_be_embedded_is_refused_by_name(engine, fields, param):
    answer = await engine.ask(embedding_request({"model": "minilm-l6-v2", **fields}))
    assert (answer.status, answer.error["param"]) == (400, param), answer.error
    assert param != "encoding_format" or "expected one of float, base64" in answer.error["message"]


async def test_each_model_does_what_it_is_for(engine):
    chat = await engine.chat(**{"model": "minilm-l6-v2", "messages": HELLO})
    assert chat.status == 400 and "does not chat" in chat.error["message"]
    embedding = await engine.ask(embedding_request({"model": MODEL, "input": "a"}))
    assert embedding.status == 400 and "does not embed" in embedding.error["message"]


@pytest.mark.alone
async def test_a_long_prompt_is_encoded_beside_other_work(engine):
    messages: Any = [{"role": "user", "content": "bridge " * 200_000}]
    slowest = 0.0

    async def beat() -> None:
        nonlocal slowest
        while True:
            before, worked_before = time.monotonic(), time.process_time()
            await asyncio.sleep(0.001)
            # While the machine stands still nothing works here either, and the loop is not to blame.
            slowest = max(slowest, min(time.monotonic() - before, time.process_time() - worked_before))

    beating = asyncio.create_task(beat())
    body = {"model": MODEL, "messages": messages}
    answer = await engine.chat(**body)
    beating.cancel()
    assert answer.error["code"] == "context_length_exceeded"
    assert slowest < 0.5, "the event loop stood still while a prompt was encoded"
