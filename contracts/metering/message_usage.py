"""Usage in the format of Anthropic's Messages API: input in three disjoint kinds, output including its thinking."""

from contracts.metering.usage import Usage

MessageUsage = dict[str, object]


def input_usage(usage: Usage) -> MessageUsage:
    """Return the input leaves. Unknown ones are omitted, except `input_tokens`, which is required and is then 0.

    `input_tokens` is input that was neither read from a cache nor written to one.
    """
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    found: MessageUsage = {"input_tokens": (usage.input_tokens or 0) - (read or 0) - (written or 0)}
    if written is not None:
        found["cache_creation_input_tokens"] = written
        found["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage.cache_write_5m or 0,
            "ephemeral_1h_input_tokens": usage.cache_write_1h or 0,
        }
    if read is not None:
        found["cache_read_input_tokens"] = read
    return found


def message_usage(usage: Usage) -> MessageUsage:
    """Return all leaves. Example: output_text 5 and output_reasoning 7 -> output_tokens 12, thinking_tokens 7."""
    found = input_usage(usage) | {"output_tokens": usage.output_tokens or 0}
    if usage.output_reasoning is not None:
        found["output_tokens_details"] = {"thinking_tokens": usage.output_reasoning}
    return found
