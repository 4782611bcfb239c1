"""What LiteLLM says was used, and what of it the provider had reported."""

from typing import Any

import msgspec
import pytest

from backends.providers.usage import reported_usage
from contracts.metering.openai_usage import usage_from_openai
from contracts.metering.usage import OpenAIUsage, Usage


def usage(found: dict[str, Any], *, has_guessed: bool = False, is_complete: bool = True) -> Usage | None:
    """Return the leaves that the gateway makes of it."""
    reported = reported_usage(found, has_guessed=has_guessed, is_complete=is_complete)
    return None if reported is None else usage_from_openai(msgspec.convert(reported, OpenAIUsage))


ANTHROPIC = {
    "prompt_tokens": 22,
    "completion_tokens": 15,
    "total_tokens": 37,
    "prompt_tokens_details": {
        "cached_tokens": 7,
        "cache_write_tokens": 5,
        "text_tokens": 10,
        "cache_creation_token_details": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3},
    },
    "completion_tokens_details": {"reasoning_tokens": 6, "text_tokens": 9},
}


def test_every_token_is_in_one_leaf() -> None:
    assert usage(ANTHROPIC) == Usage(
        input_text=10, cache_read_text=7, cache_write_5m=2, cache_write_1h=3, output_text=9, output_reasoning=6
    )


def test_an_answer_that_was_cut_has_its_input_and_no_output_count() -> None:
    found = usage(ANTHROPIC, is_complete=False)
    assert found is not None
    assert (found.input_tokens, found.output_tokens) == (22, None)


@pytest.mark.parametrize("found", [{}, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}])
def test_what_is_all_zero_was_not_reported(found: dict[str, Any]) -> None:
    assert usage(found) is None


def test_a_zero_where_litellm_would_have_counted_is_unknown() -> None:
    assert usage({"prompt_tokens": 8, "completion_tokens": 0}, has_guessed=True) == Usage(input_text=8)
    assert usage({"prompt_tokens": 8, "completion_tokens": 0}) == Usage(input_text=8, output_text=0)


def test_thinking_that_nobody_counted_stays_in_the_output() -> None:
    found = {"prompt_tokens": 8, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 0}}
    assert usage(found, has_guessed=True) == Usage(input_text=8, output_text=9)


def test_audio_and_images_have_leaves_of_their_own() -> None:
    found = {
        "prompt_tokens": 30,
        "completion_tokens": 9,
        "prompt_tokens_details": {"audio_tokens": 4, "image_tokens": 6},
        "completion_tokens_details": {"audio_tokens": 2},
    }
    assert usage(found) == Usage(input_text=20, input_audio=4, input_image=6, output_text=7, output_audio=2)


def test_reasoning_beside_the_completion_tokens_is_counted_once() -> None:
    found = {
        "prompt_tokens": 8,
        "completion_tokens": 5,
        "total_tokens": 20,
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    assert usage(found) == Usage(input_text=8, output_text=5, output_reasoning=7)


def test_a_total_that_holds_a_tool_s_input_is_no_reasoning() -> None:
    found = {
        "prompt_tokens": 8,
        "completion_tokens": 5,
        "total_tokens": 19,
        "prompt_tokens_details": {"tool_use_tokens": 6},
    }
    assert usage(found) == Usage(input_text=8, output_text=5)
