"""The two counts that most usage consists of: text in, and text out."""

from typing import Final, cast

from msgspec.structs import astuple

from contracts.metering.usage import LEAVES, Usage

_IN: Final = LEAVES.index("input_text")
_OUT: Final = LEAVES.index("output_text")
_fields_of: Final = astuple  # a local name is faster: every answer passes here


def plain_counts(usage: Usage) -> tuple[int, int] | None:
    """Return the text input and the visible output if only these two were reported, as usual; else `None`."""
    leaves = cast("tuple[int | None, ...]", _fields_of(usage))
    tokens_in, tokens_out = leaves[_IN], leaves[_OUT]
    if tokens_in is None or tokens_out is None:
        return None
    return (tokens_in, tokens_out) if leaves.count(None) == len(leaves) - 2 else None
