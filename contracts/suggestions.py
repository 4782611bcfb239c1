"""Suggestions for misspelt words: "did you mean ...?"."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_CUTOFF: Final = 0.6


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest known word, or an empty string if none is close."""
    near = get_close_matches(word, sorted(known), n=1, cutoff=_CUTOFF)
    return f"; did you mean {near[0]!r}?" if near else ""
