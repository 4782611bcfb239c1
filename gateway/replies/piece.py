"""A piece of an answer of which only some tokens may be delivered."""

from msgspec import structs

from contracts.api.generation import Delta
from contracts.metering.least_tokens import first_words, least_tokens


def part_of(delta: Delta, tokens: int) -> Delta | None:
    """Return the start of a piece that has at most this many of its tokens; `None` if it cannot be divided.

    Plain text is divided between words: a piece counted by its words loses those beyond, one with more tokens than
    words loses more. Text timed by our own engines, tool calls and signed reasoning are not divided.
    """
    is_text = bool(delta.text) != bool(delta.reasoning)
    if not is_text or tokens <= 0 or delta.times_ns:
        return None
    if delta.tool_calls or delta.logprobs or delta.thinking_blocks or delta.refusal:
        return None
    said = delta.text or delta.reasoning
    words = least_tokens(said)
    kept = first_words(said, words * tokens // delta.tokens)
    if not kept or kept == said:
        return None
    thoughts = min(delta.reasoning_tokens, tokens)
    if delta.text:
        return structs.replace(delta, tokens=tokens, text=kept, reasoning_tokens=thoughts, finish_reason=None, stop="")
    return structs.replace(delta, tokens=tokens, reasoning=kept, reasoning_tokens=thoughts, finish_reason=None, stop="")
