"""Usage in OpenAI's format: totals that include their parts, split into leaves and summed again."""

from typing import Final, cast

import msgspec

from contracts.errors import InvalidUsage
from contracts.metering.usage import CompletionTokensDetails, OpenAIUsage, PromptTokensDetails, Usage

_PLAIN_FIELDS: Final = 3
_UNCOUNTED_FIELDS: Final = 4  # the last ones
assert OpenAIUsage.__struct_fields__[-_UNCOUNTED_FIELDS:] == ("service_tier", "speed", "cost", "cost_in_usd_ticks")
assert OpenAIUsage.__struct_fields__[:_PLAIN_FIELDS] == ("prompt_tokens", "completion_tokens", "total_tokens")
_fields_of: Final = msgspec.structs.astuple  # a local name is faster: every answer passes here
_NO_PROMPT_DETAILS = PromptTokensDetails()
_NO_COMPLETION_DETAILS = CompletionTokensDetails()


def usage_from_openai(reported: OpenAIUsage) -> Usage:
    """Split OpenAI's overlapping totals into leaves. Raises InvalidUsage if the counts contradict each other.

    Input: `audio_tokens` and `image_tokens` state what the prompt was, `cached_tokens` and `cache_write_tokens` where
    it came from or went, so one token may be in both. This API does not say which tokens were: cached and written
    tokens are assumed to be text as far as the text suffices, then audio, then images (which have no cached leaf and
    stay with the cached text). No token is counted twice, and the leaves sum to the total.

    Output: some providers report reasoning outside `completion_tokens`, and it appears only in `total_tokens`: its
    excess over prompt and completion is reasoning, and must equal `reasoning_tokens` if those are reported.

    Anthropic's names: `cache_read_input_tokens` and `cache_creation_input_tokens` are parts of `prompt_tokens` as well,
    unless that is impossible: if all parts together exceed it, or `total_tokens` contains them in addition, those
    reported only under these names are added to it.

    Examples: prompt 100 of which cached 60 -> input_text 40, cache_read_text 60. Prompt 100, cached 60, audio 50 ->
    cache_read_text 50, cache_read_audio 10, input_audio 40. Prompt 8, completion 5, total 20 -> output_text 5,
    output_reasoning 7. Prompt 31 with 1253 created -> input_text 31, cache_write_5m 1253.
    """
    plain = _plain_usage(cast("tuple[object, ...]", _fields_of(reported)))
    if plain is not None:
        return plain
    long_lived: int | None = None
    if reported.cache_creation_input_tokens is not None or reported.cache_read_input_tokens is not None:
        reported = _with_cache_inside(reported)
    details = reported.prompt_tokens_details or _NO_PROMPT_DETAILS
    if details.cache_creation_tokens is not None or details.cache_creation_token_details is not None:
        details, long_lived = _with_one_write(details)
    prompt = _prompt_leaves(reported.prompt_tokens, details, long_lived)
    output = reported.completion_tokens_details or _NO_COMPLETION_DETAILS
    outside = _reasoning_outside(reported, output.reasoning_tokens)
    inside = 0 if outside else output.reasoning_tokens or 0
    return Usage(
        **prompt,
        output_text=_remainder(
            "completion_tokens", reported.completion_tokens, inside, output.audio_tokens, output.image_tokens
        ),
        output_reasoning=outside or output.reasoning_tokens,
        output_audio=output.audio_tokens,
        output_image=output.image_tokens,
    )


def _plain_usage(fields: tuple[object, ...]) -> Usage | None:
    """Return the usage if a report contains only two counts and their sum, as almost all do."""
    whole, made, total = fields[0], fields[1], fields[2]
    if not isinstance(whole, int) or not isinstance(made, int) or not isinstance(total, int) or total != whole + made:
        return None
    for place in range(_PLAIN_FIELDS, len(fields) - _UNCOUNTED_FIELDS):
        if fields[place] is not None:
            return None
    return Usage(input_text=whole, output_text=made)


def _with_cache_inside(reported: OpenAIUsage) -> OpenAIUsage:
    """Move what is reported of the cache under Anthropic's names into OpenAI's breakdown."""
    details = reported.prompt_tokens_details or _NO_PROMPT_DETAILS
    read, written = details.cached_tokens, details.cache_write_tokens
    written = details.cache_creation_tokens if written is None else written
    beside = 0  # reported only under Anthropic's names
    if reported.cache_read_input_tokens and not read:
        read = reported.cache_read_input_tokens
        beside += read
    if reported.cache_creation_input_tokens and not written:
        written = reported.cache_creation_input_tokens
        beside += written
    prompt, total = _prompt_with(reported, beside, (read or 0) + (written or 0))
    return msgspec.structs.replace(
        reported,
        prompt_tokens=prompt,
        total_tokens=total,
        prompt_tokens_details=msgspec.structs.replace(
            details,
            cached_tokens=reported.cache_read_input_tokens if read is None else read,
            cache_write_tokens=reported.cache_creation_input_tokens if written is None else written,
            cache_creation_token_details=details.cache_creation_token_details or reported.cache_creation,
        ),
    )


def _prompt_with(reported: OpenAIUsage, beside: int, cached: int) -> tuple[int | None, int | None]:
    """Return the prompt's and the total tokens, adding cached ones if the prompt does not include them yet.

    `beside`: tokens reported only under Anthropic's names. `cached`: all that went through the cache.
    """
    prompt, total = reported.prompt_tokens, reported.total_tokens
    if beside and prompt is not None:
        if cached > prompt or total == prompt + (reported.completion_tokens or 0) + beside:
            return prompt + beside, None
    return prompt, total


def _with_one_write(details: PromptTokensDetails) -> tuple[PromptTokensDetails, int | None]:
    """Return the breakdown with the cache's writes under one name, and how many of them are cached for an hour."""
    written, lives = details.cache_write_tokens, details.cache_creation_token_details
    written = details.cache_creation_tokens if written is None else written
    long_lived = lives.ephemeral_1h_input_tokens if lives is not None else None
    if lives is not None and written is None:
        written = (lives.ephemeral_5m_input_tokens or 0) + (long_lived or 0)
    known = None if long_lived is None else min(long_lived, written or 0)
    return msgspec.structs.replace(details, cache_write_tokens=written), known


def _prompt_leaves(total: int | None, parts: PromptTokensDetails, long_lived: int | None) -> dict[str, int | None]:
    cached, written = parts.cached_tokens, parts.cache_write_tokens
    audio, image = parts.audio_tokens, parts.image_tokens
    cached_audio: int | None = None
    text: int | None = None
    if total is not None:
        # Each of the two divisions of the prompt must fit into it; their joint excess is in both.
        through_cache = total - _remainder_of("prompt_tokens", total, cached, written)
        spoken_or_seen = total - _remainder_of("prompt_tokens", total, audio, image)
        text = total - through_cache - spoken_or_seen
        if text < 0:
            in_both, text = -text, 0
            both_audio = min(in_both, audio or 0)
            both_image = in_both - both_audio
            audio = None if audio is None else audio - both_audio
            image = None if image is None else image - both_image
            cached_audio = min(both_audio, cached or 0) or None
            cached = None if cached is None else cached - (cached_audio or 0)
    return {
        "input_text": text,
        "input_audio": audio,
        "input_image": image,
        "cache_read_text": cached,
        "cache_read_audio": cached_audio,
        "cache_write_5m": None if written is None else written - (long_lived or 0),
        "cache_write_1h": long_lived,
    }


def _reasoning_outside(reported: OpenAIUsage, reasoning: int | None) -> int:
    """Return how many reasoning tokens are outside `completion_tokens`."""
    prompt, completion, total = reported.prompt_tokens, reported.completion_tokens, reported.total_tokens
    if prompt is None or completion is None or total is None or total <= prompt + completion:
        return 0
    surplus = total - prompt - completion
    if reasoning is not None and reasoning != surplus:
        raise InvalidUsage(
            f"total_tokens of {total} exceed prompt and completion by {surplus}, and reasoning_tokens are {reasoning}"
        )
    return surplus


def _remainder(name: str, total: int | None, *parts: int | None) -> int | None:
    return None if total is None else _remainder_of(name, total, *parts)


def _remainder_of(name: str, total: int, *parts: int | None) -> int:
    rest = total - sum(part for part in parts if part is not None)
    if rest < 0:
        raise InvalidUsage(f"the parts of {name} add up to {total - rest}, more than its total of {total}")
    return rest


def openai_usage(usage: Usage) -> dict[str, object]:
    """Render leaves as OpenAI's `usage` object: totals that include their parts.

    Unknown totals are rendered as 0, because the protocol requires integers; the record keeps `None`.
    """
    prompt, completion = usage.input_tokens or 0, usage.output_tokens or 0
    cached = usage.cache_read_tokens
    rendered: dict[str, object] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if cached is not None:
        rendered["prompt_tokens_details"] = {"cached_tokens": cached}
    if usage.output_reasoning is not None:
        rendered["completion_tokens_details"] = {"reasoning_tokens": usage.output_reasoning}
    return rendered
