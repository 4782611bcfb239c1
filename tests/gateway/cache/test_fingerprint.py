"""What makes two requests the same, and what may be said in other words."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.embedder.base import MOST_CHARACTERS
from contracts.access.identity import Identity
from contracts.json_names import has_repeated_names
from gateway.cache.fingerprint import Context, Fingerprint, fingerprint, share_of

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "What is a tariff?"}]}


def named(body: dict[str, Any] | bytes, *context: str) -> Fingerprint:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = fingerprint(data, Context(context), wants_text=True)
    assert found is not None
    return found


def said(text: object, **more: Any) -> dict[str, Any]:
    return {**CHAT, "messages": [{"role": "user", "content": text}], **more}


def test_only_the_words_of_the_last_message_may_differ_in_what_is_alike() -> None:
    one, other = named(said("What is a tariff?")), named(said("Explain tariffs to me"))
    assert one.around == other.around and one.exact != other.exact and other.text == "Explain tariffs to me"
    for unlike in (
        said("What is a tariff?", temperature=0.5),
        said("What is a tariff?", tools=[{"type": "function", "function": {"name": "f"}}]),
        {**CHAT, "messages": [{"role": "system", "content": "Be brief"}, *CHAT["messages"]]},
        {**CHAT, "messages": [*CHAT["messages"], {"role": "assistant", "content": "x"}, *CHAT["messages"]]},
        said([{"type": "text", "text": "What is a tariff?"}, {"type": "image_url", "image_url": {"url": "data:,a"}}]),
    ):
        assert named(unlike).around != one.around
    assert named(CHAT, "another tenant").around != one.around


def test_texts_about_other_numbers_are_never_alike() -> None:
    assert named(said("What is 17 + 5?")).around != named(said("What is 17 + 6?")).around
    assert named(said("Sum 17 and 5.0, please")).around == named(said("Please sum 17 and 5.0")).around


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Convert -40 C to F", "Convert 40 C to F"),
        ("Is x > 5 for x = 6?", "Is x < 5 for x = 6?"),
        ("Is x >= 5?", "Is x > 5?"),
        ("Is a == b?", "Is a != b?"),
        ("What is 12+7?", "What is 12-7?"),
        ("What is x - y?", "What is x, y?"),
        ("What is 8*2?", "What is 8/2?"),
        ("Is .5 enough?", "Is 5 enough?"),
        ("Is 10% much?", "Is 10 much?"),
        ("Is $10 much?", "Is \u20ac10 much?"),
        ("Is \u22125 cold?", "Is 5 cold?"),
    ],
)
def test_texts_with_other_signs_or_operators_are_never_alike(one: str, other: str) -> None:
    assert named(said(one)).around != named(said(other)).around


def test_punctuation_and_spelling_of_signs_are_no_difference() -> None:
    plain = named(said("A well known price of 5. Is it so?")).around
    assert named(said("Hi! A well-known price of 5, is it so?!")).around == plain
    assert named(said("Is \u22125 cold?")).around == named(said("Is -5 cold?")).around


@pytest.mark.parametrize(("length", "is_read"), [(-1, True), (0, True), (1, False)])
def test_a_text_that_no_embedder_reads_whole_is_not_looked_at(length: int, is_read: bool) -> None:
    text = "a" * (MOST_CHARACTERS + length)
    for content in (text, [{"type": "text", "text": text}]):
        found = named(said(content))
        assert (found.text, bool(found.around)) == ((text, True) if is_read else ("", False))


@pytest.mark.parametrize(
    ("text", "opposite"),
    [
        ("Cancel my subscription", "Do not cancel my subscription"),
        ("You should mix these", "You shouldn\u2019t mix these"),
        ("Paris with a car", "Paris without a car"),
        ("Ist das erlaubt?", "Ist das nicht erlaubt?"),
    ],
)
def test_a_text_and_its_opposite_are_never_alike(text: str, opposite: str) -> None:
    assert named(said(text)).around != named(said(opposite)).around


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,a"}}]}],
        [{"role": "assistant", "content": "x"}],
        [],
        "x",
    ],
)
def test_where_no_user_has_said_anything_nothing_is_alike(messages: object) -> None:
    found = named({**CHAT, "messages": messages})
    assert (found.text, found.around) == ("", b"")


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b"\xff", b'{"a": ' + b"[" * 5000])
def test_what_cannot_be_read_has_no_name(body: bytes) -> None:
    assert fingerprint(body, Context(), wants_text=True) is None


@pytest.mark.parametrize(
    ("body", "repeats"),
    [
        (b'{"a": 1, "b": {"a": 2}}', False),
        (b'{"a": 1, "a": 1}', True),
        (b'{"b": [{"a": 1, "\\u0061": 1}]}', True),
        (b"{", True),
    ],
)
def test_a_name_given_twice_is_found_wherever_it_is(body: bytes, repeats: bool) -> None:
    assert has_repeated_names(body) is repeats


def test_an_answer_never_goes_further_than_its_tenant() -> None:
    who = Identity("acme", "core", "apollo", "key_1", "u1")
    shares = [share_of(who, share) for share in ("tenant", "project", "key", "user")]
    assert shares == [("acme",), ("acme", "core", "apollo"), ("acme", "key_1"), ("acme", "key_1", "u1")]
    assert share_of(Identity("acme", key_id="key_1"), "user") is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1, max_size=4), json_values, max_size=5), st.booleans())
def test_two_spellings_of_one_request_have_one_name(fields: dict[str, Any], escapes: bool) -> None:
    turned = dict(reversed(fields.items()))
    one = json.dumps(fields, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")
    other = json.dumps(turned, ensure_ascii=escapes).encode("utf-8", "surrogatepass")
    assert fingerprint(one, Context(), wants_text=False) == fingerprint(other, Context(), wants_text=False)


tenants = st.tuples(st.text(max_size=4), st.text(max_size=4))


@given(tenants, tenants)
def test_contexts_of_different_owners_are_different(one: tuple[str, str], other: tuple[str, str]) -> None:
    body = json.dumps(CHAT).encode()
    names = [fingerprint(body, Context(owner), wants_text=True) for owner in (one, other)]
    assert (names[0] == names[1]) is (one == other)
