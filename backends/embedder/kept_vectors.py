"""Vectors of recent texts, each cached for its owner only."""

from collections import OrderedDict
from hashlib import blake2b
from typing import TypeAlias

from backends.embedder.base import Embedding

VectorKey: TypeAlias = tuple[str, int, bytes]


def key_of(text: bytes, owner: str, most_tokens: int) -> VectorKey:
    """Return the cache key of a text. It differs between owners: response times would otherwise reveal that another one
    sent the text.
    """
    return owner, most_tokens, blake2b(text, digest_size=16).digest()


class KeptVectors:
    """A cache of vectors; the least recently used ones are replaced first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[VectorKey, Embedding] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: VectorKey) -> Embedding | None:
        """Return a vector if it is cached."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, key: VectorKey, embedding: Embedding) -> None:
        """Cache a vector, replacing the least recently used one if there is no room."""
        self._kept[key] = embedding
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
