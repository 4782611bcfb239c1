"""Vectors of texts as arrays."""

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from backends.embedder.base import DIMENSIONS, Embedding

FloatArray: TypeAlias = NDArray[np.float64]


def array_of(embeddings: Iterable[Embedding]) -> FloatArray:
    """Return the embeddings as an array [texts, DIMENSIONS]."""
    data = b"".join(embedding.vector for embedding in embeddings)
    return np.frombuffer(data, dtype="<f4").reshape(-1, DIMENSIONS).astype(np.float64)
