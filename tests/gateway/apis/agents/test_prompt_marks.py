"""Checksums of a prompt's parts: the same for the same part, whatever marks a place to cache up to."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.prompt_marks import MOST_MARKS, marks_of

USER: Any = {"role": "user", "content": "hi"}
ANSWER: Any = {"role": "assistant", "content": "yes"}
TOOLS: Any = [{"name": "Bash", "input_schema": {"type": "object"}}]


def marks(**fields: Any) -> list[int]:
    return marks_of(json.dumps(fields, separators=(",", ":")).encode())


def test_a_longer_turn_begins_with_the_marks_of_the_one_before():
    before = marks(model="m", system="s", tools=TOOLS, messages=[USER])
    after = marks(model="m", system="s", tools=TOOLS, messages=[USER, ANSWER, USER])
    assert len(before) == 3 and after[:3] == before and len(after) == 5


@pytest.mark.parametrize(
    ("change", "place"),
    [({"tools": []}, 0), ({"system": "t"}, 1), ({"messages": [ANSWER, ANSWER]}, 2), ({"messages": [USER, USER]}, 3)],
)
def test_an_edit_changes_the_mark_of_its_part_alone(change, place):
    fields = {"system": "s", "tools": TOOLS, "messages": [USER, ANSWER]}
    first, second = marks(**fields), marks(**{**fields, **change})
    assert [number for number, mark in enumerate(first) if second[number] != mark] == [place]


def test_a_mark_to_cache_up_to_changes_nothing():
    block = {"type": "text", "text": 'a "quoted" text'}
    marked = block | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    plain = marks(system=[block, block], messages=[{"role": "user", "content": block["text"]}])
    assert marks(system=[block, marked], messages=[{"role": "user", "content": [marked]}]) == plain


@pytest.mark.parametrize(
    "fields",
    [
        {"instructions": "s", "tools": TOOLS, "input": [USER]},
        {"systemInstruction": "s", "tools": TOOLS, "contents": [USER]},
        {"system": "s", "tools": TOOLS, "messages": [USER]},
    ],
)
def test_every_api_has_the_same_parts(fields):
    assert marks(**fields) == marks(system="s", tools=TOOLS, messages=[USER])


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"messages": 5}', b'{"input": [], "previous_response_id": "r"}'])
def test_what_cannot_be_read_or_is_only_a_part_has_no_marks(body):
    assert marks_of(body) == []


@pytest.mark.parametrize("count", [MOST_MARKS - 3, MOST_MARKS - 2, MOST_MARKS - 1])
def test_there_are_at_most_1000(count):
    assert len(marks(messages=[USER] * count)) == min(count + 2, MOST_MARKS)


@given(st.binary(max_size=300))
def test_nothing_raises(body):
    marks_of(body)
