"""Cached answers by the meaning of their questions: one set of embeddings for all requests that are equal except for
their text.
"""

import logging
from typing import Final

from backends.embedder.base import DIMENSIONS, Embedder
from contracts.errors import TollkeeperError
from gateway.cache.nearest_vectors import NearestVectors
from gateway.cache.same_question import compared_form

_log = logging.getLogger(__name__)

_Name = tuple[str, bytes]  # a tenant and a key
_COMPARED: Final = 8  # questions whose forms are compared: the nearest may be the opposite, and the next the same


class Meanings:
    """Finds, among a tenant's questions that differ only in their text, the one closest in meaning."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._alike: dict[_Name, NearestVectors] = {}  # by tenant and all but the words
        self._places: dict[_Name, tuple[_Name, int]] = {}
        self._kept: dict[int, tuple[bytes, str]] = {}  # a key and its question's form, by number
        self._next = 0

    def __len__(self) -> int:
        return len(self._places)

    async def embed(self, tenant: str, text: str) -> bytes | None:
        """Return a text's embedding; `None` if it cannot be computed for the whole text."""
        try:
            embedding = await self._embedder.embed(text, tenant)
        except TollkeeperError as error:
            _log.debug("a question's meaning is not known", extra={"code": error.error_code})
            return None
        return embedding.vector if embedding.is_whole else None

    def find(
        self, tenant: str, around: bytes, text: str, meaning: bytes, similarity: float
    ) -> tuple[bytes, float] | None:
        """Return the key and the cosine of the question closest in meaning that may share its answer with `text`;
        `None` if there is none.

        Its cosine is at least `similarity`, and its normalized form is the same.
        """
        alike = self._alike.get((tenant, around))
        if alike is None:
            return None
        form = compared_form(text)
        for number, cosine in alike.nearest(meaning, _COMPARED):
            if cosine < similarity:
                return None
            key, kept_form = self._kept[number]
            if kept_form == form:
                return key, cosine
        return None

    def add(self, tenant: str, key: bytes, around: bytes, text: str, meaning: bytes) -> None:
        """Add a question and its embedding, whose answer has this key."""
        self.forget(tenant, key)
        name = (tenant, around)
        alike = self._alike.get(name)
        if alike is None:
            alike = self._alike[name] = NearestVectors(DIMENSIONS)
        number = self._next
        self._next += 1
        alike.add(number, meaning)
        self._kept[number] = (key, compared_form(text))
        self._places[tenant, key] = (name, number)

    def forget(self, tenant: str, key: bytes) -> None:
        """Remove a question if it exists."""
        place = self._places.pop((tenant, key), None)
        if place is None:
            return
        name, number = place
        del self._kept[number]
        alike = self._alike[name]
        alike.remove(number)
        if not len(alike):
            del self._alike[name]
