"""Reranking and scoring nouns: what is paired with what, in which order it comes back, and what upstreams report."""

import msgspec
import pytest

from contracts.api.rerank import MAX_TEXTS, PairReply, RerankRequest, ScoreRequest, check_sides, rerank_order
from contracts.errors import InvalidRequest, InvalidUsage
from contracts.metering.usage import Usage
from contracts.pricing.prices import is_billable


def rerank(**fields):
    given = {"model": "m", "query": "q", "documents": ["a", {"text": "b", "title": "t"}], **fields}
    return msgspec.convert(given, RerankRequest)


def score(text_1, text_2):
    return msgspec.convert({"model": "m", "text_1": text_1, "text_2": text_2}, ScoreRequest)


def test_a_query_is_paired_with_every_document():
    assert rerank().pairs == [(0, 0), (0, 1)]


@pytest.mark.parametrize(
    ("text_1", "text_2", "pairs"),
    [
        ("a", "b", [(0, 0)]),
        ("a", ["b", "c"], [(0, 0), (0, 1)]),
        (["a"], ["b", "c"], [(0, 0), (0, 1)]),
        (["a", "b"], ["c", "d"], [(0, 0), (1, 1)]),
    ],
)
def test_texts_are_scored_one_to_many_or_each_with_its_counterpart(text_1, text_2, pairs):
    request = score(text_1, text_2)
    check_sides(request)
    assert request.pairs == pairs


@pytest.mark.parametrize(
    ("request_of", "param", "words"),
    [
        (lambda: rerank(documents=[]), "documents", ["documents is empty"]),
        (lambda: score([], "a"), "text_1", ["text_1 is empty"]),
        (lambda: score(["a", "b"], "c"), "text_1", ["2 entries", "text_2 has 1"]),
        (lambda: score(["a", "b"], ["c", "d", "e"]), "text_1", ["2 entries", "text_2 has 3"]),
        (lambda: rerank(documents=["a"] * (MAX_TEXTS + 1)), "documents", ["2049 entries", "at most 2048"]),
    ],
)
def test_sides_that_cannot_be_paired_are_refused_by_name(request_of, param, words):
    with pytest.raises(InvalidRequest) as refused:
        check_sides(request_of())
    assert refused.value.param == param
    assert all(word in refused.value.message for word in words), refused.value.message


def test_as_many_documents_as_are_taken_are_taken():
    check_sides(rerank(documents=["a"] * MAX_TEXTS))


@pytest.mark.parametrize(("top_n", "order"), [(None, [2, 0, 1, 3]), (0, [2, 0, 1, 3]), (2, [2, 0]), (9, [2, 0, 1, 3])])
def test_the_best_come_first_and_equals_in_their_own_order(top_n, order):
    assert rerank_order([0.5, 0.25, 0.75, 0.25], top_n) == order


@pytest.mark.parametrize(
    ("reply", "usage"),
    [
        ({"usage": {"total_tokens": 9}}, Usage(input_text=9)),
        ({"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 9}}, Usage(input_text=9)),
        (
            {"usage": {"prompt_tokens": 0, "completion_tokens": 9, "total_tokens": 9}},
            Usage(input_text=0, output_text=9),
        ),
        ({"usage": {"prompt_tokens": 8, "total_tokens": 8, "completion_tokens": 0}}, Usage(input_text=8)),
        ({"usage": {"prompt_tokens": 0, "total_tokens": 0}}, Usage(input_text=0)),
        ({"meta": {"billed_units": {"search_units": 1}}}, None),
        ({"meta": {"billed_units": {"search_units": 1}, "tokens": {"input_tokens": 7.0}}}, Usage(input_text=7)),
        ({"meta": {"billed_units": {"input_tokens": 5}, "tokens": {"input_tokens": 7}}}, Usage(input_text=5)),
        ({"meta": {"tokens": {"input_tokens": 7, "output_tokens": 2}}}, Usage(input_text=7, output_text=2)),
        ({"usage": {}, "meta": None}, None),
        ({}, None),
    ],
)
def test_tokens_are_read_from_either_shape_and_searches_are_no_tokens(reply, usage):
    assert msgspec.convert(reply, PairReply).reported == usage


@pytest.mark.parametrize("count", [7.5, -1, 2**32, 1e300])
def test_a_count_that_is_none_is_no_usage(count):
    reply = msgspec.convert({"meta": {"tokens": {"input_tokens": count}}}, PairReply)
    with pytest.raises(InvalidUsage):
        _ = reply.reported


@pytest.mark.parametrize("operation", ["rerank", "score", "embeddings"])
def test_input_alone_is_all_of_a_rerank_or_a_score(operation):
    assert is_billable(Usage(input_text=5), operation)
    assert not is_billable(Usage(input_text=5), "chat")
