"""What is sent to an OpenAI-compatible server: the caller's bytes if nothing is changed, else only what must be."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from backends.llm.base import ModelCall
from backends.llm.http.openai_body import BodyFields, body_for
from backends.llm.http.openai_http import OpenAIHttpTarget
from contracts.api.embedding import EmbeddingRequest
from contracts.errors import ConfigurationError
from contracts.serving.configuration import TargetSpec

PLAIN = BodyFields()


@pytest.fixture
def call_with(call_of: Callable[[bytes], ModelCall]) -> Callable[..., ModelCall]:
    def make(changes: dict[str, Any], **fields: Any) -> ModelCall:
        body = {"model": "m", "messages": [{"role": "user", "content": "a"}], **fields}
        return replace(call_of(json.dumps(body, indent=1).encode()), **changes)

    return make


def rewritten(call: ModelCall, server: BodyFields = PLAIN) -> dict[str, Any]:
    """The fields that differ from what the caller sent."""
    sent, given = json.loads(body_for(call, server)), json.loads(call.body)
    assert set(given) <= set(sent)
    return {name: value for name, value in sent.items() if name not in given or given[name] != value}


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, {}),
        ({"priority": 2, "deadline_ns": 5}, {"priority": 1}),
        ({"max_output": 100}, {"max_tokens": 99}),
        ({"max_output": 100}, {"max_tokens": 100}),
        ({"max_output": 100}, {"max_completion_tokens": 100, "min_tokens": 3}),
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"reasoning_effort": "low"}, {"chat_template_kwargs": {"reasoning_effort": "low", "x": 1}}),
        ({"reasoning_effort": "none"}, {"reasoning": {"effort": "none"}}),
        ({}, {"stream": True, "stream_options": {"include_usage": True}}),
    ],
)
def test_where_nothing_is_changed_the_bytes_go_out_as_they_came(call_with, changes, fields):
    call = call_with(changes, **fields)
    assert body_for(call, PLAIN) is call.body


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"max_tokens": 101}, {"max_tokens": 100}),
        ({"max_completion_tokens": 101}, {"max_completion_tokens": 100}),
        ({"max_tokens": 101, "max_completion_tokens": 7}, {"max_tokens": 100}),
        ({"max_tokens": 500, "max_completion_tokens": 500}, {"max_tokens": 100, "max_completion_tokens": 100}),
        ({"max_tokens": None, "max_completion_tokens": 500}, {"max_completion_tokens": 100}),
        ({"max_tokens": None}, {"max_tokens": 100}),
        ({}, {"max_tokens": 100}),
        ({"min_tokens": 200}, {"max_tokens": 100, "min_tokens": 100}),
        ({"min_tokens": 100}, {"max_tokens": 100}),
    ],
)
def test_a_cap_lowers_the_limit_under_the_name_that_the_caller_used(call_with, given, sent):
    assert rewritten(call_with({"max_output": 100}, **given)) == sent


def test_a_limit_that_the_caller_did_not_give_has_the_name_that_the_server_takes(call_with):
    server = BodyFields(output_limit="max_completion_tokens")
    assert rewritten(call_with({"max_output": 100}), server) == {"max_completion_tokens": 100}
    assert rewritten(call_with({"max_output": 100}, max_tokens=200), server) == {"max_tokens": 100}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, {"reasoning_effort": "low"}),
        ({"reasoning_effort": "high"}, {"reasoning_effort": "low"}),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high", "x": 1}},
            {"chat_template_kwargs": {"reasoning_effort": "low", "x": 1}},
        ),
        (
            {"chat_template_kwargs": {"x": 1}, "reasoning": {"effort": "high", "exclude": True}},
            {"reasoning": {"effort": "low", "exclude": True}},
        ),
        ({"chat_template_kwargs": {"enable_thinking": True}}, {"reasoning_effort": "low"}),
        ({"reasoning": {"max_tokens": 9}}, {"reasoning_effort": "low"}),
    ],
)
def test_an_effort_replaces_every_one_that_the_caller_states(call_with, given, sent):
    assert rewritten(call_with({"reasoning_effort": "low"}, **given)) == sent


def test_no_effort_at_all_also_switches_the_chat_templates_thinking_off(call_with):
    call = call_with({"reasoning_effort": "none"}, chat_template_kwargs={"enable_thinking": True})
    assert rewritten(call) == {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False}}


def test_a_server_whose_models_do_not_reason_is_told_no_effort(call_with):
    call = call_with({"reasoning_effort": "low"}, reasoning_effort="high")
    assert body_for(call, BodyFields(sends_reasoning_effort=False)) is call.body


@pytest.mark.parametrize("given", [{}, {"priority": -100}])
def test_a_priority_is_told_where_the_server_takes_one_and_is_the_gateways(call_with, given):
    assert rewritten(call_with({"priority": 2}, **given), BodyFields(sends_priority=True)) == {"priority": 2}


def test_changes_come_together_and_leave_other_fields_byte_for_byte(call_with):
    call = call_with({"max_output": 5}, stream=True, seed=1, unknown={"a": [1.50, "\u00fc"]})
    sent = body_for(call, BodyFields(model="theirs"))
    assert rewritten(call, BodyFields(model="theirs")) == {
        "model": "theirs",
        "max_tokens": 5,
        "stream_options": {"include_usage": True},
    }
    start = call.body.index(b'"unknown"') + len(b'"unknown": ')
    assert call.body[start : call.body.rindex(b"}")].strip() in sent


def test_embeddings_are_never_capped():
    request = EmbeddingRequest(model="m", input="a")
    body = b'{"model":"m","input":"a"}'
    call = ModelCall(UUID(int=1), "/embeddings", request, body, "acme", "s", max_output=1, reasoning_effort="low")
    assert body_for(call, BodyFields(sends_priority=True)) is body


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"output_limit_field": "max_new_tokens"}, "output_limit_field"),
        ({"sends_priority": "yes"}, "sends_priority"),
        ({"send_priority": True}, "send_priority"),
    ],
)
def test_a_target_with_settings_that_cannot_be_is_refused(settings, named):
    spec = TargetSpec("t", "p", "openai_http", url="http://127.0.0.1:1/v1", settings=settings)
    with pytest.raises(ConfigurationError, match=named):
        OpenAIHttpTarget(spec, str)


async def test_caps_and_settings_reach_the_server(upstream, call_with, sink):
    settings = {"output_limit_field": "max_completion_tokens", "sends_priority": True}
    target = OpenAIHttpTarget(TargetSpec("t", "p", "openai_http", url=upstream.url, settings=settings), str)
    upstream.always(upstream.whole(upstream.completion()))
    call = call_with({"max_output": 5, "priority": 1, "reasoning_effort": "low"})
    assert await target.count_input(call) is None
    await target.call(call, sink)
    sent = upstream.requests[0].json
    assert (sent["max_completion_tokens"], sent["priority"], sent["reasoning_effort"]) == (5, 1, "low")
    await target.close()
