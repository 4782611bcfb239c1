"""Bodies and tags, whatever they hold: a request, or a refusal; never anything else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.api.chat import ChatRequest
from contracts.errors import InvalidRequest, MalformedBody
from gateway.apis.reading import read_chat, read_tags

JSON = "application/json"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from([*ChatRequest.__struct_fields__, "vendor"])


@given(st.dictionaries(NAMES, VALUES))
def test_any_json_object_is_a_request_or_an_invalid_request(fields):
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}], **fields}
    try:
        assert read_chat(JSON, json.dumps(body).encode()).model
    except InvalidRequest as error:
        assert error.message and error.status == 400


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(body):
    with pytest.raises(InvalidRequest):
        read_chat(JSON, body)


@given(st.integers(0, 80))
def test_a_body_cut_anywhere_is_malformed_at_a_place_within_it(cut):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "some text to be cut"}]}).encode()
    if cut >= len(body):
        return
    with pytest.raises(MalformedBody) as refused:
        read_chat(JSON, body[:cut])
    assert refused.value.message.endswith(f"at byte {cut} of {cut}")


def test_fields_of_a_newer_protocol_are_let_through():
    request = read_chat(JSON, b'{"model":"m","messages":[{"role":"user","content":"a","new":1}],"newer":{"x":[]}}')
    assert request.model == "m"


def test_tags_are_read_with_spaces_trimmed_and_the_last_of_equal_keys():
    assert read_tags("") == {}
    assert read_tags(" a = 1 ,b=2=3,, a=4 ") == {"a": "4", "b": "2=3"}


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=9), st.text("xyz0123", max_size=9), max_size=16))
def test_tags_that_fit_are_read_back(tags):
    assert read_tags(", ".join(f"{key}={value}" for key, value in tags.items())) == tags
