"""Validates the counts of a usage: called for every one, and so compiled separately from its struct."""

from typing import Final

import msgspec
from msgspec.structs import astuple

from contracts.errors import InvalidUsage

MAX_TOKENS_PER_LEAF: Final = 2**32 - 1  # UInt32 columns


def check_counts(usage: msgspec.Struct) -> None:
    """Raise InvalidUsage if a leaf's count does not fit into its column."""
    for place, count in enumerate(astuple(usage)):
        if count is not None and not 0 <= count <= MAX_TOKENS_PER_LEAF:
            leaf = usage.__struct_fields__[place]
            raise InvalidUsage(f"{leaf} is {count}; a count must be within 0 to {MAX_TOKENS_PER_LEAF}")
