"""Similarity of two answers: by words in order, or by embeddings."""

import asyncio
from array import array
from difflib import SequenceMatcher
from typing import Final

from backends.embedder.base import Embedder
from contracts.errors import TollkeeperError
from contracts.serving.rollouts import PLATFORM_TENANT

_MOST_WORDS: Final = 400  # a comparison takes time with the square of this


def by_words(first: str, second: str) -> float:
    """Return the share (0 to 1) of words that both texts have in the same order, of the first few hundred of each.

    Ratcliff and Obershelp's measure, as in `difflib`; 1 if both are empty.
    """
    pair = first.split()[:_MOST_WORDS], second.split()[:_MOST_WORDS]
    return SequenceMatcher(None, *pair, autojunk=False).ratio()


def cosine(first: bytes, second: bytes) -> float:
    """Return the cosine of two vectors of length 1 (packed float32, native byte order)."""
    return sum(one * other for one, other in zip(array("f", first), array("f", second), strict=True))


async def likeness(first: str, second: str, embedder: Embedder | None) -> tuple[float, str]:
    """Return the similarity of two texts and its basis: "meaning" if an embedder is given and answers, else "words"."""
    if first == second:
        return 1.0, "meaning" if embedder is not None else "words"
    if embedder is not None:
        try:
            vectors = [await embedder.embed(text, PLATFORM_TENANT) for text in (first, second)]
        except TollkeeperError:  # the embedder is not available now: compare words
            pass
        else:
            return cosine(vectors[0].vector, vectors[1].vector), "meaning"
    return await asyncio.to_thread(by_words, first, second), "words"
