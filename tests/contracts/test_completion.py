"""What a text completion asks for: its prompts, and how many texts are made for it."""

import msgspec
import pytest

from contracts.api.completion import CompletionRequest, count_of, entries_of
from contracts.api.embedding import EmbeddingRequest
from contracts.errors import InvalidRequest


@pytest.mark.parametrize(
    ("given", "entries"),
    [
        ("a", ["a"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        (["a", [1]], ["a", [1]]),
        ([], []),
    ],
)
def test_texts_and_token_lists_are_told_apart_and_counted(given, entries):
    assert entries_of("prompt", given) == entries
    assert count_of(given) == len(entries)


@pytest.mark.parametrize("given", [["a", 1], [1, "a"], [[1], 2]])
def test_ids_beside_other_entries_are_refused_under_the_fields_name(given):
    for request in (CompletionRequest("m", given), EmbeddingRequest("m", given)):
        field = "prompt" if isinstance(request, CompletionRequest) else "input"
        with pytest.raises(InvalidRequest, match=field) as refused:
            request.prompts if isinstance(request, CompletionRequest) else request.inputs
        assert refused.value.param == field


@pytest.mark.parametrize("kind", [CompletionRequest, EmbeddingRequest])
@pytest.mark.parametrize(("token", "is_taken"), [(-1, False), (0, True), (2**31 - 1, True), (2**31, False)])
def test_a_token_id_is_held_to_its_bounds(kind, token, is_taken):
    field = "prompt" if kind is CompletionRequest else "input"
    for given in ([5, token], [[5, token]]):
        body = msgspec.json.encode({"model": "m", field: given})
        if is_taken:
            msgspec.json.decode(body, type=kind)
        else:
            with pytest.raises(msgspec.ValidationError, match=field):
                msgspec.json.decode(body, type=kind)


@pytest.mark.parametrize(
    ("fields", "texts"),
    [({}, 2), ({"n": 3}, 6), ({"best_of": 4}, 8), ({"n": 3, "best_of": 4}, 8), ({"n": 3, "best_of": 3}, 6)],
)
def test_texts_that_best_of_leaves_out_are_counted(fields, texts):
    assert CompletionRequest("m", ["a", "b"], **fields).choice_count == texts


def test_the_default_limit_is_the_apis_and_not_the_callers():
    silent, stated = CompletionRequest("m", "a"), CompletionRequest("m", "a", max_tokens=5)
    assert (silent.output_limit, silent.stated_limits) == (16, ())
    assert (stated.output_limit, stated.stated_limits) == (5, (5,))
