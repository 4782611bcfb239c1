"""Similarity of two prompts from MinHash sketches (Broder 1997; Cohen and Kaplan 2007).

A prompt is the set of its three-word sequences, with digits removed: "customer 17" and "customer 18" are equal. Of the
set's hashes the 64 lowest are kept. The similarity (Jaccard: intersection over union) of two sets is estimated from the
64 lowest of both together: exactly if there are fewer, otherwise with a standard error of at most 0.063. Hashes are
seeded per process, so they cannot be predicted.
"""

from array import array
from collections.abc import Iterator
from typing import Final, TypeAlias

SKETCH_SIZE: Final = 64
Sketch: TypeAlias = "array[int]"  # the lowest hashes, ascending

_MOST_CHARACTERS: Final = 8192  # the rest of a longer prompt is ignored
_MOST_UNSPACED: Final = 2048
_LEAST_WORDS: Final = 6
_LONGEST_MEAN_WORD: Final = 24  # characters; above this the text has no spaces between words, or is no prose
_RUN: Final = 4  # characters, of text without words
_NO_DIGITS: Final = {code: None for code in range(ord("0"), ord("9") + 1)}
_INDEX_SIZE: Final = 8


def sketch_of(text: str) -> Sketch:
    """Return a prompt's sketch; empty for a prompt without text."""
    plain = text[:_MOST_CHARACTERS].lower().translate(_NO_DIGITS)
    words = plain.split()
    if len(words) >= _LEAST_WORDS and len(plain) <= _LONGEST_MEAN_WORD * len(words):
        runs = set(map(hash, zip(words, words[1:], words[2:], strict=False)))
    else:
        joined = " ".join(words)[:_MOST_UNSPACED]
        runs = {hash(joined[at : at + _RUN]) for at in range(max(len(joined) - _RUN + 1, 1))} if joined else set()
    return array("q", sorted(runs)[:SKETCH_SIZE])


def similarity(one: Sketch, other: Sketch) -> float:
    """Return the estimated Jaccard similarity of two prompts, 0 to 1; 0 if one is empty."""
    if one == other:
        return 1.0 if len(one) else 0.0
    first, second = set(one), set(other)
    least = sorted(first | second)[:SKETCH_SIZE]
    both = first & second
    return sum([each in both for each in least]) / len(least)


def index_of(sketch: Sketch) -> Iterator[int]:
    """Return the hashes under which a sketch is indexed. Two prompts of similarity J have none in common with a
    probability of about (1 - J)^8.
    """
    return iter(sketch[:_INDEX_SIZE])
