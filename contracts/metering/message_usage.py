"""Usage as Anthropic's Messages API has it: input in three disjoint kinds, output with its thinking inside."""

from contracts.metering.usage import Usage

MessageUsage = dict[str, object]


def input_usage(usage: Usage) -> MessageUsage:
    """Return the input leaves. What is not known is left out, but for `input_tokens`, which must be there and is 0
    then.

    `input_tokens` is the input that was neither read from a cache nor written to one.
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
    """Return all leaves. Example: output_text 5 and output_reasoning 7 -> output_tokens 12, thinking_tokens 7 of
    them.
    """
    found = input_usage(usage) | {"output_tokens": usage.output_tokens or 0}
    if usage.output_reasoning is not None:
        found["output_tokens_details"] = {"thinking_tokens": usage.output_reasoning}
    return found
