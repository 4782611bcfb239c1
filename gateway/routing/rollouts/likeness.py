"""Similarity of two answers: by words in order, or by embeddings."""

import asyncio
from array import array
from difflib import SequenceMatcher
from typing import Final

from backends.embedder.base import Embedder
from contracts.errors import TollkeeperError
from contracts.serving.rollouts import PLATFORM_TENANT

_MOST_WORDS: Final = 400  # comparing takes time with their square


def by_words(first: str, second: str) -> float:
    """Return the share (0 to 1) of words that both have in the same order, of the first few hundred of each.

    Ratcliff and Obershelp's, as `difflib` has it; 1 where both are empty.
    """
    pair = first.split()[:_MOST_WORDS], second.split()[:_MOST_WORDS]
    return SequenceMatcher(None, *pair, autojunk=False).ratio()


def cosine(first: bytes, second: bytes) -> float:
    """Return the cosine of two vectors of length 1 (float32, this machine's order)."""
    return sum(one * other for one, other in zip(array("f", first), array("f", second), strict=True))


async def likeness(first: str, second: str, embedder: Embedder | None) -> tuple[float, str]:
    """Return how alike two texts are, and by what: "meaning" where an embedder is given and answers, else "words"."""
    if first == second:
        return 1.0, "meaning" if embedder is not None else "words"
    if embedder is not None:
        try:
            vectors = [await embedder.embed(text, PLATFORM_TENANT) for text in (first, second)]
        except TollkeeperError:  # not now: words do
            pass
        else:
            return cosine(vectors[0].vector, vectors[1].vector), "meaning"
    return await asyncio.to_thread(by_words, first, second), "words"
