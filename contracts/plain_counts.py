"""The two counts that are all there is to most usage: text in, and text out."""

from typing import Final

from msgspec.structs import astuple

from contracts.usage import LEAVES, Usage

_OTHER_LEAVES: Final = len(LEAVES) - 2


def plain_counts(usage: Usage) -> tuple[int, int] | None:
    """Give the text input and the visible output where these two are all that was reported, as mostly they are."""
    tokens_in, tokens_out = usage.input_text, usage.output_text
    if tokens_in is None or tokens_out is None or astuple(usage).count(None) != _OTHER_LEAVES:
        return None
    return tokens_in, tokens_out
