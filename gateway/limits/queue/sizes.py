"""Size classes of requests, so that "which ones fit" is a query on a prefix of the classes.

Below 64 tokens every size is a class; above, each octave has 32, so a size is rounded up by less than a 32nd.
"""

from typing import Final

CLASSES: Final = 1024  # up to 2**35 tokens; larger sizes are in the last class
_EXACT: Final = 64
_PER_OCTAVE: Final = 32
_SHIFT_BITS: Final = 6


def size_class(tokens: int) -> int:
    """Return the class of a size: the first that holds at least this many tokens."""
    if tokens <= _EXACT:
        return max(tokens, 0)
    shift = (tokens - 1).bit_length() - _SHIFT_BITS
    return min(_EXACT + 1 + (shift - 1) * _PER_OCTAVE + ((tokens - 1) >> shift) - _PER_OCTAVE, CLASSES - 1)


def largest_within(tokens: int) -> int:
    """Return the largest class that holds at most this many tokens; -1 if none does."""
    return size_class(tokens + 1) - 1 if tokens >= 0 else -1


def rounded_up(tokens: int) -> int:
    """Return how many tokens the class of a size holds: 64 -> 64, 65 -> 66, 1000 -> 1008."""
    if tokens <= _EXACT:
        return max(tokens, 0)
    shift = (tokens - 1).bit_length() - _SHIFT_BITS
    return ((tokens - 1 >> shift) + 1) << shift
