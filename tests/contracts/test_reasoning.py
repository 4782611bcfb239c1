"""Reasoning efforts: their order, what a cap makes of them, and where a request states one."""

import json

import pytest

from contracts.api.chat import EFFORTS, asked_effort, clip_effort
from gateway.apis.reading import read_chat


@pytest.mark.parametrize("cap", EFFORTS)
@pytest.mark.parametrize("asked", EFFORTS)
def test_an_effort_is_never_above_the_cap_nor_above_what_was_asked(asked, cap):
    clipped = clip_effort(asked, cap)
    assert clipped is not None
    assert EFFORTS.index(clipped) == min(EFFORTS.index(asked), EFFORTS.index(cap))


@pytest.mark.parametrize(
    ("asked", "cap", "clipped"),
    [
        ("low", "medium", "low"),
        ("medium", "medium", "medium"),
        ("high", "medium", "medium"),
        ("xhigh", "none", "none"),
        (None, "low", "low"),
        ("high", None, "high"),
        (None, None, None),
    ],
)
def test_where_nothing_was_asked_the_cap_is_told_as_the_models_own_default_may_be_above_it(asked, cap, clipped):
    assert clip_effort(asked, cap) == clipped


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, None),
        ({"reasoning_effort": "low"}, "low"),
        ({"chat_template_kwargs": {"reasoning_effort": "high"}}, "high"),
        ({"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}}, "high"),
        ({"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": True}}, "low"),
        ({"chat_template_kwargs": {"reasoning_effort": "ultra"}}, None),
        ({"chat_template_kwargs": {"reasoning_effort": 3}}, None),
    ],
)
def test_what_the_chat_template_is_given_counts_for_more_than_the_field(fields, asked):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "a"}], **fields}).encode()
    assert asked_effort(read_chat("application/json", body)) == asked
