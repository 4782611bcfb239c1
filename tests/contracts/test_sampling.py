"""A route's defaults and pinned values: when they hold, and who is refused."""

from typing import Any

import msgspec
import pytest

from contracts.api.chat import ChatRequest
from contracts.api.completion import CompletionRequest
from contracts.errors import ConfigurationError, UnsupportedValue
from contracts.serving.configuration import ModelSpec
from contracts.serving.sampling import SamplingPolicy, sampling_policy


def policy(defaults: dict[str, Any] | None = None, pinned: dict[str, Any] | None = None) -> SamplingPolicy:
    made = sampling_policy(defaults, pinned)
    assert made is not None
    return made


def chat(**fields: Any) -> ChatRequest:
    return msgspec.convert({"model": "m", "messages": [{"role": "user", "content": "a"}], **fields}, ChatRequest)


DEFAULTS: dict[str, Any] = {"temperature": 0.3, "stop": ["x"], "max_tokens": 50, "seed": 7, "reasoning_effort": "low"}


def test_a_silent_caller_gets_every_default():
    request, set_fields = policy(DEFAULTS).apply(chat())
    assert set_fields == DEFAULTS
    assert (request.temperature, request.stop, request.output_limit, request.seed) == (0.3, ["x"], 50, 7)
    assert request.reasoning_effort == "low"


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"temperature": 0}, "temperature"),
        ({"stop": "y"}, "stop"),
        ({"max_tokens": 60}, "max_tokens"),
        ({"max_completion_tokens": 60}, "max_tokens"),
        ({"reasoning_effort": "none"}, "reasoning_effort"),
        ({"chat_template_kwargs": {"reasoning_effort": "high"}}, "reasoning_effort"),
    ],
)
def test_what_the_caller_says_goes_before_a_default(said, field):
    request, set_fields = policy(DEFAULTS).apply(chat(**said))
    assert field not in set_fields and set_fields.keys() == DEFAULTS.keys() - {field}
    assert all(getattr(request, name) == value for name, value in said.items())


def test_null_says_nothing():
    assert policy({"temperature": 0.3}).apply(chat(temperature=None))[1] == {"temperature": 0.3}


@pytest.mark.parametrize(
    ("pinned", "said"),
    [
        ({"temperature": 0}, {"temperature": 0.1}),
        ({"max_tokens": 50}, {"max_tokens": 49}),
        ({"max_tokens": 50}, {"max_tokens": 50, "max_completion_tokens": 51}),
        ({"reasoning_effort": "low"}, {"chat_template_kwargs": {"reasoning_effort": "high"}}),
        ({"stop": ["x"]}, {"stop": ["y"]}),
    ],
)
def test_what_contradicts_a_pinned_value_is_refused_by_name(pinned, said):
    with pytest.raises(UnsupportedValue) as refused:
        policy(pinned=pinned).apply(chat(**said))
    [field] = pinned
    assert refused.value.param == field and refused.value.status == 400
    assert field in refused.value.message and "leave it out" in refused.value.message


def test_what_agrees_with_a_pinned_value_is_served_as_it_came():
    request = chat(temperature=0, max_completion_tokens=50, stop="x")
    assert policy(pinned={"temperature": 0.0, "max_tokens": 50, "stop": ["x"]}).apply(request) == (request, {})
    assert policy(pinned={"stop": "x"}).apply(request) == (request, {})


def test_a_pinned_value_holds_for_a_silent_caller():
    request, set_fields = policy(pinned={"temperature": 0}).apply(chat())
    assert (request.temperature, set_fields) == (0.0, {"temperature": 0.0})


def test_a_completion_takes_what_is_not_about_thinking():
    plain = msgspec.convert({"model": "m", "prompt": "a"}, CompletionRequest)
    request, set_fields = policy({"reasoning_effort": "low"}, {"max_tokens": 50}).apply(plain)
    assert (request.output_limit, set_fields) == (50, {"max_tokens": 50})


def test_nothing_said_is_no_policy():
    assert sampling_policy({}, None) is None and sampling_policy({"seed": None}, {}) is None


@pytest.mark.parametrize(
    ("defaults", "pinned", "word"),
    [
        ({"seed": 1}, {"seed": 1}, "seed"),
        ({"temperature": 2.1}, {}, "temperature"),
        ({}, {"warmth": 1}, "warmth"),
        ({"stop": [""]}, {}, "stop"),
        ({"stop": []}, {}, "stop"),
        ({"reasoning_effort": "some"}, {}, "reasoning_effort"),
        ({"max_tokens": 0}, {}, "max_tokens"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_by_name(defaults, pinned, word):
    with pytest.raises(ConfigurationError, match=word):
        sampling_policy(defaults, pinned)


@pytest.mark.parametrize(("limit", "fits"), [(99, True), (100, True), (101, False)])
def test_a_limit_fits_into_the_models_context(limit, fits):
    def build() -> ModelSpec:
        return ModelSpec("m", "p", context_tokens=100, sampling=policy({"max_tokens": limit}))

    if fits:
        assert build().sampling is not None
    else:
        with pytest.raises(ConfigurationError, match="max_tokens is 101"):
            build()
