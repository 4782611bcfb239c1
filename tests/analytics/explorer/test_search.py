"""What is typed to find requests is read whole, or refused by the term that is wrong."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.explorer.question import RequestQuestion, read_outcome, read_sort
from analytics.explorer.search import MAX_SEARCH_CHARACTERS, Search, read_search
from analytics.scope import Scope
from contracts.errors import InvalidRequest

ID = "0192f3a4-5b6c-7def-8123-456789abcdef"


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("", Search()),
        ("user:alice error:rate_limited", Search(user="alice", error="rate_limited")),
        ('user:"Alice B" llama', Search(user="Alice B", word="llama")),
        ("two words", Search(word="two words")),
        (ID, Search(request_id=UUID(ID))),
        ("trace:" + "AB" * 16, Search(trace="ab" * 16)),
        ("0" * 32, Search(trace="0" * 32)),
        ("status:429", Search(status=429)),
        ("tag.feature:chat:v2", Search(tag_name="feature", tag_value="chat:v2")),
        ("ttft>500ms", Search(min_ttft_ns=500_000_000)),
        ("ttft>500", Search(min_ttft_ns=500_000_000)),
        ("duration>1.5s attempts>1", Search(min_duration_ns=1_500_000_000, min_attempts=1)),
        ("duration>0.25us", Search(min_duration_ns=250)),
    ],
)
def test_terms_are_read(typed: str, found: Search) -> None:
    assert read_search(typed) == found


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("colour:red", "nothing is searched by 'colour'"),
        ("user:", "'user:' lacks a value"),
        ("status:teapot", "'teapot' is not a status"),
        ("trace:12", "32 hexadecimal digits"),
        ("attempts>1.5", "is not a whole number"),
        ("ttft>slow", "'ttft>slow' is not a lower bound; write NAME>NUMBER"),
        ("duration>=2s", "'duration>=2s' is not a lower bound"),
        ("TTFT<500ms", "'TTFT<500ms' is not a lower bound"),
        ('user:"alice', "not closed"),
        ("x" * (MAX_SEARCH_CHARACTERS + 1), "501 characters; use at most 500"),
    ],
)
def test_what_cannot_be_read_is_named(typed: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        read_search(typed)


@given(st.text(max_size=40))
def test_no_text_breaks_the_search(typed: str) -> None:
    try:
        read_search(typed)
    except InvalidRequest as error:
        assert error.param == "search"


def test_pages_orders_and_outcomes_that_are_none_are_refused(scope: Scope) -> None:
    for page in (0, 201):
        with pytest.raises(InvalidRequest, match="pages are 1 to 200"):
            RequestQuestion.of(scope, Search(), None, "newest", page)
    assert RequestQuestion.of(scope, Search(), None, "newest", 200).page_parameters()["row_offset"] == 199 * 50
    with pytest.raises(InvalidRequest, match="not an outcome"):
        read_outcome("fine")
    with pytest.raises(InvalidRequest, match="cannot be sorted by"):
        read_sort("colour")
    question = RequestQuestion.of(scope, Search(project="a"), None, "newest", 1)
    assert question.parameters()["project"] == "a"
