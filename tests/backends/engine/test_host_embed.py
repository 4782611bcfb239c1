"""The embedder: vectors as sentence-transformers gives them, counted exactly, in one answer."""

import asyncio
import random
from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from backends.engine.embed_thread import plan_batches
from backends.engine.embedder import Embedder
from backends.tokenization.minilm_files import packaged_minilm
from contracts.engine.wire import Abort, Embed, Embedded, Hello, ModelHello
from contracts.recording.records import StepRecord
from tests.backends.engine.host_client import HostClient, StartHost, make_submit

NAME = "minilm-l6-v2"
TEXTS = [
    "The invoice was paid on the first of July.",
    "Die Rechnung wurde am ersten Juli bezahlt.",
    "a",
    "Prices are per million tokens; cached input costs a tenth. " * 6,
    "Ünïcödé — 漢字 and emoji 🙂 are tokens too",
    "tollkeeper",
]


@cache
def reference() -> SentenceTransformer:
    return SentenceTransformer(str(packaged_minilm("this test needs", "install it")), device="cpu")


def vectors(answer: Embedded) -> np.ndarray:
    return np.frombuffer(answer.vectors, dtype="<f4").reshape(-1, answer.dimensions)


async def connect(start_host: StartHost) -> tuple[HostClient, ModelHello, Tokenizer]:
    running = await start_host("embedder")
    client = await (await running.client()).ready(NAME)
    model = client.of(Hello)[-1].models[0]
    return client, model, Tokenizer.from_str(model.tokenizer.decode())


async def test_vectors_are_those_of_sentence_transformers(start_host: StartHost) -> None:
    client, model, tokenizer = await connect(start_host)
    ids = [one.ids for one in tokenizer.encode_batch(TEXTS)]
    answer = await client.embed(
        Embed(request_id=b"...............1", model=NAME, inputs=ids, tokenizer_hash=model.tokenizer_hash)
    )
    assert (model.kind, answer.dimensions, answer.error_code) == ("embed", 384, "")
    expected = reference().encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    assert np.abs(vectors(answer) - expected).max() < 1e-4
    assert answer.input_tokens == sum(map(len, ids))


async def test_the_tokenizer_of_the_hello_neither_cuts_nor_pads(start_host: StartHost) -> None:
    _, model, tokenizer = await connect(start_host)
    assert len(tokenizer.encode("a").ids) == 3
    assert len(tokenizer.encode("word " * 1000).ids) == 1002
    assert model.context_tokens == 256 == reference().max_seq_length


async def test_what_else_is_in_a_batch_changes_nothing(start_host: StartHost) -> None:
    client, _, _ = await connect(start_host)
    source = random.Random(3)
    inputs = [[source.randrange(1000, 30000) for _ in range(source.randint(1, 256))] for _ in range(40)]
    together = vectors(await client.embed(Embed(request_id=b".............all", model=NAME, inputs=inputs)))
    for place in (0, 7, 39):
        alone = vectors(await client.embed(Embed(request_id=b"%016d" % place, model=NAME, inputs=[inputs[place]])))
        assert np.abs(alone[0] - together[place]).max() < 1e-4


@pytest.mark.parametrize("dimensions", [1, 128, 384])
async def test_fewer_dimensions_are_the_first_ones_at_length_one(start_host: StartHost, dimensions: int) -> None:
    client, _, tokenizer = await connect(start_host)
    ids = [tokenizer.encode(TEXTS[0]).ids]
    full = vectors(await client.embed(Embed(request_id=b"...............1", model=NAME, inputs=ids)))[0]
    cut = vectors(
        await client.embed(Embed(request_id=b"...............2", model=NAME, inputs=ids, dimensions=dimensions))
    )[0]
    assert cut.shape == (dimensions,)
    assert np.allclose(cut, full[:dimensions] / np.linalg.norm(full[:dimensions]), atol=1e-6)


REFUSED: dict[str, dict[str, object]] = {
    "context_length_exceeded": {"inputs": [[5] * 257]},
    "token_out_of_range": {"inputs": [[5], [30522]]},
    "token_out_of_range of a negative id": {"inputs": [[-1]]},
    "tokenizer_mismatch": {"tokenizer_hash": "0" * 64},
    "model_not_found": {"model": "nobody"},
    "invalid_request of no input": {"inputs": []},
    "invalid_request of an empty input": {"inputs": [[5], []]},
    "invalid_request of too many inputs": {"inputs": [[5]] * 2049},
    "invalid_request of no dimension": {"dimensions": 0},
    "invalid_request of too many dimensions": {"dimensions": 385},
}


async def test_what_cannot_be_embedded_is_refused_by_name(start_host: StartHost) -> None:
    client, _, _ = await connect(start_host)
    for number, (name, refused) in enumerate(REFUSED.items()):
        fields = {"request_id": b"%16d" % number, "model": NAME, "inputs": [[101, 102]]} | refused
        answer = await client.embed(Embed(**fields))  # type: ignore[arg-type]  # the table's
        assert answer.error_code == name.split(" ")[0] and answer.error_message and not answer.vectors, name


async def test_the_longest_input_is_embedded(start_host: StartHost) -> None:
    client, _, _ = await connect(start_host)
    answer = await client.embed(Embed(request_id=b"...............1", model=NAME, inputs=[[101, *[2000] * 254, 102]]))
    assert (answer.error_code, answer.input_tokens) == ("", 256)


async def test_generating_and_embedding_models_are_not_confused(start_host: StartHost) -> None:
    running = await start_host("embedder", "scripted")
    client = await (await (await running.client()).ready(NAME)).ready("scripted")
    assert (await client.run(make_submit(1, [1], model=NAME))).error_code == "invalid_request"
    answer = await client.embed(Embed(request_id=b"...............2", model="scripted", inputs=[[1]]))
    assert answer.error_code == "invalid_request"


async def test_a_large_request_does_not_keep_a_small_one_waiting(start_host: StartHost) -> None:
    client, _, _ = await connect(start_host)
    large = Embed(request_id=b"...........large", model=NAME, inputs=[[101, *[2000] * 60, 102]] * 400)
    client.send(large)
    await client.embed(Embed(request_id=b"...........small", model=NAME, inputs=[[101, 102]]))
    assert [one.request_id for one in client.of(Embedded)] == [b"...........small"]
    client.send(Abort(request_id=b"...........large"))
    await client.until(lambda: len(client.of(Embedded)) == 2)
    assert client.of(Embedded)[-1].error_code == "client_closed_request"


async def test_time_is_charged_to_the_nanosecond(start_host: StartHost) -> None:
    client, _, _ = await connect(start_host)
    inputs = [[101, *[2000] * length, 102] for length in range(1, 60)]
    answers = await asyncio.gather(
        *(client.embed(Embed(request_id=b"%016d" % place, model=NAME, inputs=inputs)) for place in range(3))
    )
    charged: dict[bytes, int] = defaultdict(int)
    total = 0
    for _, record in client.step_records():
        assert isinstance(record, StepRecord)
        if record.kind == "step":
            total += record.busy_ns
            assert sum(record.gpu_ns) == record.busy_ns
            for request_id, part in zip(record.request_ids, record.gpu_ns, strict=True):
                charged[request_id] += part
    assert sum(one.gpu.prefill_ns for one in answers if one.gpu) == total == sum(charged.values())
    assert all(one.gpu and one.gpu.prefill_ns == charged[one.request_id] for one in answers)


async def test_a_gateway_that_vanishes_is_not_embedded_for(start_host: StartHost) -> None:
    running = await start_host("embedder")
    first, second = [await running.client(name) for name in ("first", "second")]
    await first.ready(NAME)
    first.send(Embed(request_id=b"...........large", model=NAME, inputs=[[101, *[2000] * 200, 102]] * 2000))
    await second.embed(Embed(request_id=b"...........small", model=NAME, inputs=[[101, 102]]))
    await first.close()
    while (await second.call("health", NAME)).facts["running"]:
        await asyncio.sleep(0.005)
    while running.host.requests:  # its account is written first
        await asyncio.sleep(0.005)


@given(st.lists(st.integers(1, 256), min_size=1, max_size=100), st.integers(256, 4096))
def test_batches_hold_everything_once_within_their_bound(lengths: list[int], most: int) -> None:
    batches = plan_batches(lengths, most)
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    assert all(len(batch) * max(lengths[place] for place in batch) <= most for batch in batches)


async def test_an_error_in_a_batch_ends_its_requests_and_not_the_embedder(
    start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await start_host("embedder")
    client = await (await running.client()).ready(NAME)
    embed = Embedder.embed

    def fail(embedder: Embedder, inputs: list[list[int]]) -> object:
        if [101, 2000, 102] in inputs:
            raise IndexError("of a tensor")
        return embed(embedder, inputs)

    monkeypatch.setattr(Embedder, "embed", fail)
    answer = await client.embed(Embed(request_id=b"...............1", model=NAME, inputs=[[101, 2000, 102]]))
    assert answer.error_code == "engine_failure"
    good = await client.embed(Embed(request_id=b"...............2", model=NAME, inputs=[[101, 102]]))
    assert good.error_code == ""
    assert client.states(NAME)[-1] == "ready"
