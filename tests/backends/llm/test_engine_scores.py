"""Scores by a model that embeds: each text once, cosines as they are, and what is too long or no text by name."""

import json
import math
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.llm.base import ModelCall
from backends.llm.host_inputs.engine_scores import cosines
from contracts.api.generation import Vectors
from contracts.engine.wire import Embed
from contracts.errors import InvalidRequest, UpstreamBroken
from gateway.apis.reading import read_rerank, read_score
from tests.backends.llm.engine_fake import FakeHost, builtin_hello


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FakeHost]:
    models = [builtin_hello(), builtin_hello("embedder", kind="embed", context_tokens=8)]
    made = await FakeHost(tmp_path / "h.sock", models=models).start()
    yield made
    await made.stop()


def rerank(model: str = "embedder", **fields: Any) -> ModelCall:
    body = json.dumps({"model": model, "query": "one", "documents": ["one two", "three"], **fields}).encode()
    return ModelCall(UUID(int=8), "/rerank", read_rerank("application/json", body), body, "acme", "salt")


def score(text_1: Any, text_2: Any, **fields: Any) -> ModelCall:
    body = json.dumps({"model": "embedder", "text_1": text_1, "text_2": text_2, **fields}).encode()
    return ModelCall(UUID(int=8), "/score", read_score("application/json", body), body, "acme", "salt")


def cosine(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))


async def test_each_text_is_embedded_once_and_every_pair_scored(host, target, sink):
    call = score(["one", "one", "two two two"], ["one", "two two two", "one"])
    result = await target.call(call, sink)
    [embed] = host.of(Embed)
    assert len(embed.inputs) == 2
    lengths = [float(len(ids)) for ids in embed.inputs]  # the host's vectors: as long as the text, and a half
    unlike = cosine((lengths[0], 0.5), (lengths[1], 0.5))
    assert sink.scored == [1.0, pytest.approx(unlike), pytest.approx(unlike)]
    assert result.usage.input_text == sum(map(len, embed.inputs)) == await target.count_input(call)
    assert result.count_method == "exact" and sink.served_by == ("embedder", "weights")


async def test_documents_are_cut_where_the_caller_says_so(host, target, sink):
    documents = ["one two three four five six seven eight nine ten", "one"]
    await target.call(rerank(documents=documents, max_tokens_per_doc=3), sink)
    query, long, short = ([*ids] for ids in host.of(Embed)[-1].inputs)
    assert len(long) == 3 and short == query and sink.scored is not None and len(sink.scored) == 2
    whole = rerank(documents=["one two", "one"], max_tokens_per_doc=100)
    await target.call(whole, sink)
    assert len(host.of(Embed)[-1].inputs[1]) == len(host.of(Embed)[-1].inputs[0]) + 1


@pytest.mark.parametrize(
    ("call", "param", "words"),
    [
        (rerank(documents=["one", "two " * 30]), "documents", ["documents[1] has", "at most 8"]),
        (rerank(query=""), "query", ["query is empty"]),
        (score("one", ["two", {"image": "x"}]), "text_2[1]", ["no text", "text only"]),
        (rerank(documents=[{"text": "a"}, {"title": "b"}]), "documents[1]", ["no text"]),
        (rerank(documents={"content": [{"type": "image_url"}]}), "documents", ["no text"]),
        (rerank(rank_fields=["title"]), "rank_fields", ["not supported"]),
        (rerank(max_chunks_per_doc=3), "max_chunks_per_doc", ["not supported"]),
        (score("a", "b", truncate_prompt_tokens=5), "truncate_prompt_tokens", ["not supported"]),
        (rerank(model="tiny"), "model", ["chats"]),
    ],
)
async def test_what_cannot_be_scored_is_refused_by_name(call, param, words, host, target, sink):
    for ask in (target.count_input(call), target.call(call, sink)):
        with pytest.raises(InvalidRequest) as refused:
            await ask
        assert refused.value.param == param
        assert all(word in refused.value.message for word in words), refused.value.message
    assert not host.of(Embed)


FLOATS = st.floats(-1e3, 1e3, width=32)


@given(st.lists(st.tuples(FLOATS, FLOATS, FLOATS), min_size=2, max_size=5))
async def test_scores_are_cosines(rows):
    vectors = Vectors(3, b"".join(struct.pack("<3f", *row) for row in rows))
    pairs = [(one, other) for one in range(len(rows)) for other in range(len(rows))]
    for (one, other), found in zip(pairs, await cosines(vectors, pairs), strict=True):
        assert -1 <= found <= 1
        lengths = math.hypot(*rows[one]), math.hypot(*rows[other])
        if not all(lengths):
            assert found == 0
        elif min(lengths) > 1e-3 * max(lengths):
            assert found == pytest.approx(cosine(rows[one], rows[other]), abs=1e-8)
        if one == other and lengths[0]:
            assert found == 1


async def test_vectors_that_are_no_numbers_are_the_engines_fault():
    with pytest.raises(UpstreamBroken):
        await cosines(Vectors(2, struct.pack("<4f", 1, math.nan, 1, 1)), [(0, 1)])
