"""Usage as reported by APIs that are passed through: the decoded parts of their usage objects."""

import msgspec

from contracts.metering.usage import CacheCreation


class ThinkingDetails(msgspec.Struct, frozen=True, gc=False):
    thinking_tokens: int | None = None


class MessagesUsage(msgspec.Struct, frozen=True, gc=False):
    """Anthropic's `usage`: three disjoint kinds of input, and output including its thinking."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation: CacheCreation | None = None
    output_tokens: int | None = None
    output_tokens_details: ThinkingDetails | None = None
    service_tier: str | None = None
    speed: str | None = None


class InputDetails(msgspec.Struct, frozen=True, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(msgspec.Struct, frozen=True, gc=False):
    reasoning_tokens: int | None = None


class ResponsesUsage(msgspec.Struct, frozen=True, gc=False):
    """OpenAI's `usage` of a response: totals that include their parts."""

    input_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None
    total_tokens: int | None = None


class ModalityCount(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    modality: str = ""
    token_count: int = 0


class GeminiUsage(msgspec.Struct, frozen=True, rename="camel"):
    """Google's `usageMetadata`: cached tokens are part of the prompt's, thoughts are separate from the candidates."""

    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    total_token_count: int | None = None
    prompt_tokens_details: list[ModalityCount] | None = None
    cache_tokens_details: list[ModalityCount] | None = None
    candidates_tokens_details: list[ModalityCount] | None = None
