"""Nearest-neighbour search of embeddings: numpy for a few, USearch's index for many."""

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from usearch.index import Index

# Up to here comparing with each takes less time than asking an index, and an index 50 KB more memory.
_FEW: Final = 64

Vectors = NDArray[np.float32]


class NearestVectors:
    """Vectors of length 1 (float32, little-endian), each under its own number."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._few: Vectors = np.empty((0, dimensions), np.float32)
        self._numbers: list[int] = []  # of the rows of these
        self._index: Index | None = None

    def __len__(self) -> int:
        return len(self._numbers) if self._index is None else len(self._index)

    def add(self, number: int, vector: bytes) -> None:
        """Add a vector under a number that no other has."""
        row = self._row(vector)
        if self._index is None and len(self._numbers) < _FEW:
            self._few = np.concatenate((self._few, row[np.newaxis]))
            self._numbers.append(number)
            return
        if self._index is None:
            self._index = _new_index(self._dimensions)
            self._index.add(np.array(self._numbers, np.uint64), self._few, threads=1)
            self._few, self._numbers = self._few[:0].copy(), []
        self._index.add(number, row, threads=1)

    def remove(self, number: int) -> None:
        """Remove a vector if it exists."""
        if self._index is not None:
            self._index.remove(number)
        elif number in self._numbers:
            place = self._numbers.index(number)
            self._few = np.delete(self._few, place, axis=0)
            del self._numbers[place]

    def nearest(self, vector: bytes, count: int) -> list[tuple[int, float]]:
        """Return the numbers of at most `count` vectors and their cosines with this one, nearest first."""
        if not len(self):
            return []
        row = self._row(vector)
        if self._index is None:
            cosines = self._few @ row
            return [(self._numbers[place], float(cosines[place])) for place in np.argsort(-cosines)[:count]]
        found = self._index.search(row, count, threads=1)
        pairs = zip(found.keys, found.distances, strict=True)
        return [(int(number), 1.0 - float(distance)) for number, distance in pairs]

    def _row(self, vector: bytes) -> Vectors:
        row = np.frombuffer(vector, "<f4").astype(np.float32, copy=False)
        if row.shape != (self._dimensions,):
            raise ValueError(f"a vector has {row.size} dimensions; {self._dimensions} are expected")
        return row


def _new_index(dimensions: int) -> "Index":
    from usearch.index import Index  # here: it is loaded by gateways that keep many answers by what they mean

    return Index(ndim=dimensions, metric="ip", dtype="f16")
