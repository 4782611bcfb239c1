"""What servers say of prompt caches in Anthropic's words, beside OpenAI's: each token counted once."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import InvalidUsage
from contracts.metering.openai_usage import usage_from_openai
from contracts.metering.usage import OpenAIUsage, Usage

COUNTS = st.integers(0, 1000)


def read(**reported) -> Usage:
    return usage_from_openai(msgspec.json.decode(json.dumps(reported), type=OpenAIUsage))


def counts(prompt: int, completion: int, **more) -> dict[str, object]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}


def test_parts_that_stand_in_both_words_are_counted_once():
    """As a LiteLLM of 2026 reports a call of Anthropic's API."""
    usage = read(
        **counts(98805, 5120),
        prompt_tokens_details={"cached_tokens": 66360, "cache_creation_tokens": 32435},
        completion_tokens_details={"reasoning_tokens": 1710},
        cache_read_input_tokens=66360,
        cache_creation_input_tokens=32435,
    )
    assert usage.reported() == {
        "input_text": 10,
        "cache_read_text": 66360,
        "cache_write_5m": 32435,
        "output_text": 3410,
        "output_reasoning": 1710,
    }


def test_what_was_written_beside_the_prompt_is_added_to_it():
    """As a LiteLLM of 2025 reports it: reads are in the prompt, writes are not."""
    usage = read(
        **counts(5031, 467),
        prompt_tokens_details={"cached_tokens": 5000},
        cache_read_input_tokens=5000,
        cache_creation_input_tokens=1253,
    )
    assert usage.reported() == {
        "input_text": 31,
        "cache_read_text": 5000,
        "cache_write_5m": 1253,
        "output_text": 467,
    }


def test_a_total_that_has_the_cache_once_more_says_that_the_prompt_has_it_not():
    usage = read(prompt_tokens=2000, completion_tokens=5, total_tokens=2105, cache_read_input_tokens=100)
    assert usage.reported() == {"input_text": 2000, "cache_read_text": 100, "output_text": 5}


@pytest.mark.parametrize("beside", [99, 100, 101])
def test_parts_are_in_the_prompt_as_long_as_they_fit(beside):
    usage = read(**counts(100, 5), cache_creation_input_tokens=beside)
    outside = beside > 100
    assert (usage.input_text, usage.cache_write_5m) == (100 if outside else 100 - beside, beside)


@pytest.mark.parametrize(
    "reported",
    [
        {"prompt_tokens_details": {"cache_creation_token_details": {"ephemeral_1h_input_tokens": 300}}},
        {"cache_creation_input_tokens": 300, "cache_creation": {"ephemeral_1h_input_tokens": 300}},
        {
            "prompt_tokens_details": {
                "cache_creation_tokens": 300,
                "cache_creation_token_details": {"ephemeral_1h_input_tokens": 300, "ephemeral_5m_input_tokens": 0},
            }
        },
    ],
)
def test_what_is_kept_for_an_hour_has_a_leaf_of_its_own(reported):
    usage = read(**counts(2000, 5), **reported)
    assert (usage.input_text, usage.cache_write_5m, usage.cache_write_1h) == (1700, 0, 300)


def test_a_cache_that_was_not_used_is_known_to_be_that():
    usage = read(**counts(7, 5), cache_read_input_tokens=0, cache_creation_input_tokens=0)
    assert usage.reported() == {"input_text": 7, "cache_read_text": 0, "cache_write_5m": 0, "output_text": 5}


def test_counts_that_no_cache_can_have_are_refused():
    with pytest.raises(InvalidUsage):
        read(**counts(7, 5), cache_read_input_tokens=-1)


@settings(max_examples=80, deadline=None)
@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_every_way_of_saying_it_comes_to_the_same(text, cached, written, completion):
    prompt = text + cached + written
    wanted = Usage(input_text=text, cache_read_text=cached, cache_write_5m=written, output_text=completion)
    details = {"cached_tokens": cached, "cache_write_tokens": written}
    names = {"cache_read_input_tokens": cached, "cache_creation_input_tokens": written}
    assert read(**counts(prompt, completion), prompt_tokens_details=details) == wanted
    assert read(**counts(prompt, completion), **names) == wanted
    assert read(**counts(prompt, completion), **names, prompt_tokens_details={"cached_tokens": cached}) == wanted
    both = {"cached_tokens": cached, "cache_creation_tokens": written}
    assert read(**counts(prompt, completion), **names, prompt_tokens_details=both) == wanted
    disjoint = {**counts(text, completion), "total_tokens": prompt + completion}
    assert read(**disjoint, **names) == wanted
