"""Similarity of texts to the examples of each intent."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.routing.semantic.vectors import FloatArray

_NEAREST: Final = 3
_ROWS: Final = 64  # texts scored at once: bounds the memory


class IntentSpace:
    """The examples' vectors, by intent.

    A score is 0 to 1: the mean of the cosine to the centroid of an intent's examples and of the mean cosine to the
    three nearest of them. The centroid works well with few examples, the nearest ones for intents with several topics.
    """

    def __init__(self, vectors: FloatArray, labels: NDArray[np.int64], intents: int) -> None:
        """Accept [examples, dimensions] vectors of length 1, and each one's intent (0 to `intents` - 1)."""
        self._labels = labels
        self._is_of = labels[:, None] == np.arange(intents)
        self._sums = self._is_of.T.astype(np.float64) @ vectors
        self._middles = _normal(self._sums)
        self._counts = np.bincount(labels, minlength=intents)
        # For each intent the rows of its examples; intents with few examples get rows orthogonal to all texts.
        self._vectors = np.vstack([vectors, np.zeros_like(vectors[:1])])
        self._members = np.full((intents, max(int(self._counts.max()), _NEAREST)), len(vectors))
        for intent, count in enumerate(self._counts):
            self._members[intent, :count] = np.flatnonzero(labels == intent)

    def scores(self, texts: FloatArray) -> FloatArray:
        """Return scores [texts, intents]."""
        return self._blend(_products(texts, self._middles), _products(texts, self._vectors), self._counts)

    def held_out_scores(self) -> FloatArray:
        """Return scores [examples, intents]; each example is scored by all examples except itself."""
        vectors = self._vectors[:-1]
        own = self._is_of.astype(np.float64)
        along = vectors @ self._sums.T - own  # what is left of each sum without the example
        lengths = np.sqrt(np.maximum((self._sums**2).sum(1) - own * (2 * along + 1), 1e-12))
        to_examples = vectors @ self._vectors.T
        # A duplicate does not prove that another wording would be found.
        is_same = to_examples > 1 - 1e-9
        left = self._counts - (is_same[:, :-1] @ own).astype(np.int64)
        return self._blend(along / lengths, np.where(is_same, 0.0, to_examples), left)

    def _blend(self, to_middles: FloatArray, to_examples: FloatArray, counts: NDArray[np.int64]) -> FloatArray:
        """Return the scores; `counts`: the number of nearest examples of each intent."""
        nearest = np.empty_like(to_middles)
        for first in range(0, len(nearest), _ROWS):
            rows = slice(first, first + _ROWS)
            found = np.maximum(to_examples[rows], 0.0)[:, self._members]
            nearest[rows] = np.partition(found, found.shape[2] - _NEAREST, axis=2)[:, :, -_NEAREST:].sum(2)
        scores: FloatArray = np.clip((to_middles + nearest / np.clip(counts, 1, _NEAREST)) / 2, 0.0, 1.0)
        return scores


def _products(texts: FloatArray, others: FloatArray) -> FloatArray:
    """Return dot products [texts, others]. A single text is computed on the event loop, without threads."""
    found: FloatArray = np.einsum("td,od->to", texts, others) if len(texts) == 1 else texts @ others.T
    return found


def label_array(counts: Sequence[int]) -> NDArray[np.int64]:
    """Return the intent of each example, for examples sorted by intent with these counts."""
    return np.repeat(np.arange(len(counts)), counts)


def _normal(vectors: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    normal: FloatArray = vectors / np.maximum(lengths, 1e-12)
    return normal
