"""Every token in exactly one leaf, and nothing unknown ever counted as zero."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import InvalidUsage
from contracts.metering.openai_usage import openai_usage, usage_from_openai
from contracts.metering.usage import (
    CACHE_READ_LEAVES,
    FRESH_LEAVES,
    INPUT_LEAVES,
    LEAVES,
    MAX_TOKENS_PER_LEAF,
    OUTPUT_LEAVES,
    TOKEN_LEAVES,
    UNIT_LEAVES,
    UNKNOWN_USAGE,
    CompletionTokensDetails,
    OpenAIUsage,
    PromptTokensDetails,
    Usage,
)

SOME = settings(max_examples=80, deadline=None)
COUNTS = st.none() | st.integers(0, 10**6)
USAGES = st.builds(Usage, *[COUNTS] * len(LEAVES))
PARTS = st.none() | st.integers(0, 1000)


PACKED_BEFORE = (
    "input_text input_audio input_image cache_read_text cache_read_audio cache_write_5m cache_write_1h output_text "
    "output_reasoning output_audio output_image images milliseconds characters requests"
).split()


def test_every_field_is_a_leaf_and_every_leaf_is_on_one_side():
    assert Usage.__struct_fields__ == LEAVES
    sides = [*INPUT_LEAVES, *OUTPUT_LEAVES, *UNIT_LEAVES]
    assert sorted(sides) == sorted(LEAVES) and sorted(TOKEN_LEAVES) == sorted([*INPUT_LEAVES, *OUTPUT_LEAVES])
    assert sorted([*FRESH_LEAVES, *CACHE_READ_LEAVES]) == sorted(INPUT_LEAVES)


def test_what_was_packed_before_is_read_as_it_was_meant():
    assert list(LEAVES[: len(PACKED_BEFORE)]) == PACKED_BEFORE, "append new kinds: journals and engines pack by place"
    counts = list(range(1, len(PACKED_BEFORE) + 1))
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(counts), type=Usage)
    assert [getattr(read, leaf) for leaf in PACKED_BEFORE] == counts
    assert set(read.reported()) == set(PACKED_BEFORE)


@pytest.mark.parametrize("leaf", TOKEN_LEAVES)
def test_a_token_of_any_leaf_is_counted_once_and_on_one_side_only(leaf):
    usage = Usage(**{leaf: 7})
    assert usage.total_tokens == 7
    assert (usage.input_tokens, usage.output_tokens) == ((7, None) if leaf in INPUT_LEAVES else (None, 7))
    assert usage.reported() == {leaf: 7}


@SOME
@given(USAGES)
def test_the_sides_add_up_to_the_total_and_the_leaves_to_the_sides(usage):
    assert (usage.input_tokens or 0) + (usage.output_tokens or 0) == (usage.total_tokens or 0)
    tokens = {leaf: count for leaf, count in usage.reported().items() if leaf in TOKEN_LEAVES}
    assert sum(tokens.values()) == (usage.total_tokens or 0)
    assert (usage.total_tokens is None) is (not tokens)
    assert usage.has_units is bool(usage.reported().keys() & set(UNIT_LEAVES))
    assert usage.is_known is (usage.has_units or bool(tokens))


def test_nothing_reported_is_unknown_and_a_reported_zero_is_known():
    assert (UNKNOWN_USAGE.input_tokens, UNKNOWN_USAGE.output_tokens, UNKNOWN_USAGE.total_tokens) == (None, None, None)
    assert not UNKNOWN_USAGE.is_known
    assert Usage(input_text=0).is_known
    assert Usage(input_text=0).input_tokens == 0
    assert Usage(input_text=0).output_tokens is None


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leaf_holds_what_its_column_holds(leaf):
    for count in (0, 1, MAX_TOKENS_PER_LEAF - 1, 2**32 - 1):
        assert getattr(Usage(**{leaf: count}), leaf) == count
    for count in (-1, 2**32):
        with pytest.raises(InvalidUsage, match=f"{leaf} is {count}; .* within 0 to 4294967295"):
            Usage(**{leaf: count})


@SOME
@given(USAGES, USAGES, USAGES)
def test_adding_usage_does_not_depend_on_order_or_grouping(one, two, three):
    assert one.plus(two) == two.plus(one)
    assert one.plus(two).plus(three) == one.plus(two.plus(three))
    assert one.plus(UNKNOWN_USAGE) == one


@SOME
@given(USAGES, USAGES)
def test_adding_usage_never_loses_a_known_part_and_never_invents_one(one, two):
    total = one.plus(two)
    for leaf in LEAVES:
        parts = [count for count in (getattr(one, leaf), getattr(two, leaf)) if count is not None]
        assert getattr(total, leaf) == (sum(parts) if parts else None)


def test_a_sum_that_fits_no_column_is_refused_rather_than_wrapped():
    full = Usage(output_text=MAX_TOKENS_PER_LEAF)
    assert full.plus(Usage(output_text=0)) == full
    with pytest.raises(InvalidUsage, match="output_text is 4294967296"):
        full.plus(Usage(output_text=1))


def test_cache_sums_hold_every_kind_of_read_and_write():
    usage = Usage(cache_read_text=1, cache_read_audio=2, cache_write_5m=4, cache_write_1h=8)
    assert (usage.cache_read_tokens, usage.cache_write_tokens) == (3, 12)
    assert (UNKNOWN_USAGE.cache_read_tokens, UNKNOWN_USAGE.cache_write_tokens) == (None, None)
    assert Usage(cache_write_1h=8).cache_write_tokens == 8


# --- OpenAI's overlapping totals ---


def reported_by_openai(prompt, completion, prompt_parts, completion_parts):
    cached, audio, image, written = prompt_parts
    reasoning, audio_out, image_out = completion_parts
    return OpenAIUsage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        prompt_tokens_details=PromptTokensDetails(cached, audio, image, written),
        completion_tokens_details=CompletionTokensDetails(reasoning, audio_out, image_out),
    )


@SOME
@given(st.tuples(*[PARTS] * 4), st.tuples(*[PARTS] * 3), st.integers(0, 1000), st.integers(0, 1000))
def test_leaves_taken_from_openai_totals_sum_back_to_them(prompt_parts, completion_parts, text_in, text_out):
    prompt = text_in + sum(part or 0 for part in prompt_parts)
    completion = text_out + sum(part or 0 for part in completion_parts)
    usage = usage_from_openai(reported_by_openai(prompt, completion, prompt_parts, completion_parts))
    assert (usage.input_tokens, usage.output_tokens) == (prompt, completion)
    assert (usage.input_text, usage.output_text) == (text_in, text_out)
    cached, audio, image, written = prompt_parts
    assert (usage.cache_read_text, usage.input_audio, usage.input_image, usage.cache_write_5m) == (
        cached,
        audio,
        image,
        written,
    )
    assert (usage.output_reasoning, usage.output_audio, usage.output_image) == completion_parts


@SOME
@given(st.tuples(*[PARTS] * 4), st.integers(1, 50))
def test_parts_of_either_kind_beyond_their_total_are_refused(prompt_parts, excess):
    cached, audio, image, written = (part or 0 for part in prompt_parts)
    total = max(cached + written, audio + image) - excess
    with pytest.raises(InvalidUsage, match="parts of prompt_tokens|input_text is"):
        usage_from_openai(reported_by_openai(total, 0, prompt_parts, (None, None, None)))


@SOME
@given(*[st.integers(0, 100)] * 4, st.data())
def test_a_truthful_report_is_taken_whatever_of_it_was_cached(text, audio, image, written, data):
    total = text + audio + image
    written = min(written, total)
    cached = data.draw(st.integers(0, total - written))
    usage = usage_from_openai(reported_by_openai(total, 0, (cached, audio, image, written), (None, None, None)))
    assert usage.input_tokens == total
    assert (usage.cache_read_tokens, usage.cache_write_tokens) == (cached, written)
    assert (usage.input_audio or 0) + (usage.cache_read_audio or 0) <= audio
    assert (usage.input_image or 0) <= image
    assert (usage.input_text or 0) <= text


@pytest.mark.parametrize(
    ("prompt", "parts", "expected"),
    [
        # below, at and above what fits side by side: 40 of text beside 60 of audio
        (100, (39, 60, None, None), Usage(input_text=1, cache_read_text=39, input_audio=60)),
        (100, (40, 60, None, None), Usage(input_text=0, cache_read_text=40, input_audio=60)),
        (100, (41, 60, None, None), Usage(input_text=0, cache_read_text=40, cache_read_audio=1, input_audio=59)),
        (100, (100, 60, None, None), Usage(input_text=0, cache_read_text=40, cache_read_audio=60, input_audio=0)),
        (100, (80, None, 90, None), Usage(input_text=0, cache_read_text=80, input_image=20)),
        (100, (None, None, 90, 95), Usage(input_text=0, cache_write_5m=95, input_image=5)),
        (
            100,
            (90, 20, 30, None),
            Usage(input_text=0, cache_read_text=70, cache_read_audio=20, input_audio=0, input_image=10),
        ),
    ],
)
def test_cached_input_is_taken_as_text_first_then_as_audio_then_as_images(prompt, parts, expected):
    usage = usage_from_openai(reported_by_openai(prompt, None, parts, (None, None, None)))
    assert usage == expected
    assert usage.input_tokens == prompt


def test_parts_may_be_all_of_their_total_but_not_one_more():
    exact = usage_from_openai(reported_by_openai(100, 10, (60, None, None, 40), (10, None, None)))
    assert (exact.input_text, exact.cache_read_text, exact.cache_write_5m) == (0, 60, 40)
    assert (exact.output_text, exact.output_reasoning) == (0, 10)
    with pytest.raises(InvalidUsage, match="parts of prompt_tokens add up to 100, more than its total of 99"):
        usage_from_openai(reported_by_openai(99, 10, (60, None, None, 40), (10, None, None)))
    with pytest.raises(InvalidUsage, match="parts of prompt_tokens add up to 101, more than its total of 100"):
        usage_from_openai(reported_by_openai(100, 10, (None, 60, 41, None), (10, None, None)))
    with pytest.raises(InvalidUsage, match="parts of completion_tokens add up to 10, more than its total of 9"):
        usage_from_openai(reported_by_openai(100, 9, (60, None, None, 40), (10, None, None)))


@pytest.mark.parametrize(
    ("completion", "total", "parts", "expected"),
    [
        # reasoning within the completion, as OpenAI reports it
        (12, 20, (7, None, None), Usage(input_text=8, output_text=5, output_reasoning=7)),
        # beside it, and named
        (5, 20, (7, None, None), Usage(input_text=8, output_text=5, output_reasoning=7)),
        (5, 20, (7, 2, None), Usage(input_text=8, output_text=3, output_reasoning=7, output_audio=2)),
        # beside it, and shown by the total only
        (5, 20, (None, None, None), Usage(input_text=8, output_text=5, output_reasoning=7)),
        # a total that is no more than its parts, or less, says nothing
        (5, 13, (3, None, None), Usage(input_text=8, output_text=2, output_reasoning=3)),
        (5, 0, (3, None, None), Usage(input_text=8, output_text=2, output_reasoning=3)),
    ],
)
def test_reasoning_beside_the_completion_is_counted_once(completion, total, parts, expected):
    details = CompletionTokensDetails(*parts)
    report = OpenAIUsage(8, completion, total, completion_tokens_details=details)
    assert usage_from_openai(report) == expected


@pytest.mark.parametrize("reasoning", [0, 6, 8])
def test_a_total_that_reported_reasoning_does_not_explain_is_refused(reasoning):
    report = OpenAIUsage(8, 5, 20, completion_tokens_details=CompletionTokensDetails(reasoning))
    with pytest.raises(InvalidUsage, match=f"by 7, and reasoning_tokens are {reasoning}"):
        usage_from_openai(report)


@pytest.mark.parametrize(
    "report",
    [
        OpenAIUsage(prompt_tokens=-1),
        OpenAIUsage(completion_tokens=-1),
        OpenAIUsage(prompt_tokens=2**32),
        OpenAIUsage(prompt_tokens=10, prompt_tokens_details=PromptTokensDetails(cached_tokens=-5)),
        OpenAIUsage(completion_tokens=10, completion_tokens_details=CompletionTokensDetails(reasoning_tokens=-1)),
    ],
)
def test_a_negative_or_absurd_count_is_refused_wherever_it_stands(report):
    with pytest.raises(InvalidUsage):
        usage_from_openai(report)


def test_what_openai_does_not_report_stays_unknown():
    assert usage_from_openai(OpenAIUsage()) == UNKNOWN_USAGE
    prompt_only = usage_from_openai(OpenAIUsage(prompt_tokens=8, total_tokens=8))  # an embedding's report
    assert prompt_only == Usage(input_text=8)
    parts_only = usage_from_openai(OpenAIUsage(prompt_tokens_details=PromptTokensDetails(cached_tokens=3)))
    assert parts_only == Usage(cache_read_text=3)


def test_rejected_predictions_are_output_that_was_billed_once():
    details = CompletionTokensDetails(accepted_prediction_tokens=4, rejected_prediction_tokens=6)
    usage = usage_from_openai(OpenAIUsage(completion_tokens=20, completion_tokens_details=details))
    assert usage == Usage(output_text=20)


@SOME
@given(USAGES)
def test_rendered_for_openai_and_read_back_no_token_is_lost_or_counted_twice(usage):
    rendered = openai_usage(usage)
    back = usage_from_openai(msgspec.convert(rendered, OpenAIUsage))
    assert back.input_tokens == (usage.input_tokens or 0)
    assert back.output_tokens == (usage.output_tokens or 0)
    assert rendered["total_tokens"] == (usage.total_tokens or 0)
    assert back.cache_read_tokens == usage.cache_read_tokens
    assert back.output_reasoning == usage.output_reasoning


@SOME
@given(st.integers(0, 1000), st.none() | st.integers(0, 1000), st.integers(0, 1000), st.none() | st.integers(0, 1000))
def test_text_usage_survives_a_round_trip_through_openai_unchanged(text, cached, visible, reasoning):
    usage = Usage(input_text=text, cache_read_text=cached, output_text=visible, output_reasoning=reasoning)
    assert usage_from_openai(msgspec.convert(openai_usage(usage), OpenAIUsage)) == usage


def test_an_openai_body_with_fields_from_the_future_is_read():
    body = b'{"prompt_tokens":100,"completion_tokens":9,"total_tokens":109,"cost":1,"prompt_tokens_details":\
{"cached_tokens":60,"tokens_of_the_future":0},"completion_tokens_details":null}'
    assert usage_from_openai(msgspec.json.decode(body, type=OpenAIUsage)) == Usage(
        input_text=40, cache_read_text=60, output_text=9
    )
