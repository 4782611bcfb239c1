"""A model that embeds, at vLLM: inputs go one by one and come back together."""

import numpy as np
import pytest

from backends.engine.vllm_engine.llm_client import LlmFacts, LlmVector
from contracts.engine.wire import Embed, Embedded
from contracts.errors import InvalidRequest
from tests.backends.engine.vllm_engine.driving import rest

FACTS = LlmFacts(kind="embed", context_tokens=8, vocabulary=4096, block_size=16, kv_blocks=64, dimensions=4)


@pytest.fixture
def embedder(make_engine):
    engine, llm = make_engine(facts=FACTS)

    def vector(prompt):
        return LlmVector(np.array([3, 4, prompt.token_ids[0], 0], "<f4").tobytes(), 4)

    llm.vector = vector
    return engine, llm


def embed(inputs, **options) -> Embed:
    return Embed(request_id=b"e" * 16, model="m", inputs=inputs, **options)


def vectors(answer: Embedded) -> list[list[float]]:
    return np.frombuffer(answer.vectors, "<f4").reshape(-1, answer.dimensions).tolist()


def test_vectors_come_in_the_order_of_their_inputs(embedder):
    engine, _ = embedder
    engine.embed(embed([[1], [2, 2], [3]]))
    (answer,) = rest(engine)
    assert isinstance(answer, Embedded)
    assert vectors(answer) == [[3, 4, 1, 0], [3, 4, 2, 0], [3, 4, 3, 0]]
    assert answer.input_tokens == 4 and not answer.error_code


def test_fewer_dimensions_are_the_first_ones_at_length_one(embedder):
    engine, _ = embedder
    engine.embed(embed([[1]], dimensions=2))
    (answer,) = rest(engine)
    assert isinstance(answer, Embedded)
    assert vectors(answer) == [[pytest.approx(0.6), pytest.approx(0.8)]]


@pytest.mark.parametrize(
    ("inputs", "options"),
    [([], {}), ([[]], {}), ([[1] * 9], {}), ([[4096]], {}), ([[1]], {"dimensions": 5}), ([[1]], {"dimensions": 0})],
)
def test_what_cannot_be_embedded_is_refused_at_once(embedder, inputs, options):
    engine, _ = embedder
    with pytest.raises(InvalidRequest):
        engine.embed(embed(inputs, **options))
    assert not engine.has_work


def test_an_abort_ends_every_input(embedder):
    engine, llm = embedder
    engine.embed(embed([[1], [2]]))
    engine.abort(b"e" * 16)
    (answer,) = rest(engine)
    assert isinstance(answer, Embedded) and answer.error_code == "client_closed_request"
    assert [name for name, _ in llm.aborted] == [f"{place}_{'65' * 16}" for place in range(2)]


def test_a_refusal_of_one_input_is_the_whole_request_s(embedder):
    engine, llm = embedder
    llm.vector = lambda prompt: ValueError("This model does not support pooling")
    engine.embed(embed([[1], [2]]))
    (answer,) = rest(engine)
    assert isinstance(answer, Embedded) and "does not support pooling" in answer.error_message


def test_it_says_what_it_is_and_needs_no_warming_up(embedder):
    engine, llm = embedder
    engine.warm_up()
    assert engine.hello().kind == "embed" and engine.hello().dimensions == 4 and not llm.requests
