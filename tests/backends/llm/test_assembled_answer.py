"""What a stream's chunks carry, put together, is what the server would have sent whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.llm import assembled_answer
from backends.llm.assembled_answer import AssembledAnswer
from bench.regressions.answer_shapes import SHAPES
from contracts.errors import UpstreamBroken


def assembled(*chunks):
    answer = AssembledAnswer()
    for chunk in chunks:
        answer.take(chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode())
    return json.loads(answer.body())


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_chunks_of_known_servers_make_their_whole_answers(shape):
    assert assembled(*shape.chunks) == shape.whole


@given(st.lists(st.text(), max_size=20))
def test_any_text_in_any_pieces_is_the_same_text(pieces):
    chunks = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in ["", *pieces]]
    assert assembled(*chunks)["choices"][0]["message"]["content"] == "".join(pieces)


@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=5)), min_size=1, max_size=30))
def test_choices_and_calls_that_take_turns_stay_apart(pieces):
    chunks = [
        {"choices": [{"index": index, "delta": {"tool_calls": [{"index": index, "function": {"arguments": text}}]}}]}
        for index, text in pieces
    ]
    for choice in assembled(*chunks)["choices"]:
        [call] = choice["message"]["tool_calls"]
        wanted = "".join([text for index, text in pieces if index == choice["index"]])
        assert call == {"function": {"arguments": wanted}}


@pytest.mark.parametrize("chunk", [b"[1]", b"no json", b"\xff", b'{"a": ' * 2000])
def test_what_is_no_chunk_is_refused(chunk):
    with pytest.raises(UpstreamBroken):
        assembled(chunk)


def test_a_stream_without_a_chunk_is_no_answer():
    with pytest.raises(UpstreamBroken):
        AssembledAnswer().body()


def test_an_answer_is_held_up_to_the_same_size_as_a_whole_reply(monkeypatch):
    monkeypatch.setattr(assembled_answer, "MAX_BYTES", 100)
    chunk = b'{"choices":[{"index":0,"delta":{"content":"x"}}]}'
    assembled(*[chunk] * (100 // len(chunk)))
    with pytest.raises(UpstreamBroken, match="100 bytes"):
        assembled(*[chunk] * (100 // len(chunk) + 1))
