"""Usage as Anthropic's Messages API and OpenAI's Responses API report it, split into leaves."""

from typing import Final

import msgspec

from contracts.metering.native_reports import GeminiUsage, MessagesUsage, ModalityCount, ResponsesUsage
from contracts.metering.openai_usage import usage_from_openai
from contracts.metering.usage import (
    CompletionTokensDetails,
    OpenAIUsage,
    PromptTokensDetails,
    Usage,
)

NOTHING_STATED: Final = MessagesUsage()


def updated_usage(stated: MessagesUsage, later: MessagesUsage) -> MessagesUsage:
    """Return a usage updated with what a later event of the stream reports."""
    if stated is NOTHING_STATED:
        return later
    said = {name: value for name in stated.__struct_fields__ if (value := getattr(later, name)) is not None}
    return msgspec.structs.replace(stated, **said)


def usage_from_messages(reported: MessagesUsage) -> Usage:
    """Return the leaves. Raise InvalidUsage if a count does not fit into a column.

    Example: input 10, creation 5 of which 2 for an hour, output 7 with 3 of thinking -> input_text 10, cache_write_5m
    3, cache_write_1h 2, output_text 4, output_reasoning 3.
    """
    written = reported.cache_creation_input_tokens
    lives = reported.cache_creation
    hour = None if lives is None else lives.ephemeral_1h_input_tokens
    if written is None and lives is not None:
        written = (lives.ephemeral_5m_input_tokens or 0) + (hour or 0)
    if hour is not None:
        hour = min(hour, written or 0)
    details, made = reported.output_tokens_details, reported.output_tokens
    thought = None if details is None else details.thinking_tokens
    if thought is not None and made is not None:
        thought = min(thought, made)
    return Usage(
        input_text=reported.input_tokens,
        cache_read_text=reported.cache_read_input_tokens,
        cache_write_5m=None if written is None else written - (hour or 0),
        cache_write_1h=hour,
        output_text=None if made is None else made - (thought or 0),
        output_reasoning=thought,
    )


def usage_from_responses(reported: ResponsesUsage) -> Usage:
    """Return the leaves. Raise InvalidUsage if the counts contradict each other."""
    given, made = reported.input_tokens_details, reported.output_tokens_details
    return usage_from_openai(
        OpenAIUsage(
            prompt_tokens=reported.input_tokens,
            completion_tokens=reported.output_tokens,
            total_tokens=reported.total_tokens,
            prompt_tokens_details=None
            if given is None
            else PromptTokensDetails(cached_tokens=given.cached_tokens, cache_write_tokens=given.cache_write_tokens),
            completion_tokens_details=None
            if made is None
            else CompletionTokensDetails(reasoning_tokens=made.reasoning_tokens),
        )
    )


def usage_from_gemini(reported: GeminiUsage) -> Usage:
    """Return the leaves. Raise InvalidUsage if a count does not fit into a column.

    Example: prompt 100 of which 60 are cached and 30 of an image, candidates 7, thoughts 3 -> input_text 10,
    input_image 30, cache_read_text 60, output_text 7, output_reasoning 3.
    """
    prompt, cached = reported.prompt_token_count, reported.cached_content_token_count
    made, thought = reported.candidates_token_count, reported.thoughts_token_count
    used = reported.tool_use_prompt_token_count or 0
    if made is None and reported.total_token_count is not None and prompt is not None:
        made = max(reported.total_token_count - prompt - used - (thought or 0), 0)
    image, audio = (
        max(_of(reported.prompt_tokens_details, kind) - _of(reported.cache_tokens_details, kind), 0)
        for kind in ("IMAGE", "AUDIO")
    )
    heard = _of(reported.cache_tokens_details, "AUDIO")
    drawn, spoken = _of(reported.candidates_tokens_details, "IMAGE"), _of(reported.candidates_tokens_details, "AUDIO")
    return Usage(
        input_text=None if prompt is None else max(prompt + used - (cached or 0) - image - audio, 0),
        input_image=image or None,
        input_audio=audio or None,
        cache_read_text=None if cached is None else max(cached - heard, 0),
        cache_read_audio=heard or None,
        output_text=None if made is None else max(made - drawn - spoken, 0),
        output_image=drawn or None,
        output_audio=spoken or None,
        output_reasoning=thought,
    )


def _of(details: list[ModalityCount] | None, modality: str) -> int:
    return sum([one.token_count for one in details or () if one.modality == modality])
