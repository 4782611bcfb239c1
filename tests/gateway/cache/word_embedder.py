"""An embedder that needs no model."""

import asyncio

import numpy as np

from backends.embedder.base import DIMENSIONS, Embedding
from contracts.errors import EmbedderUnavailable


class WordEmbedder:
    """An embedder for which texts mean the words in them, in any order."""

    identity = "words"

    def __init__(self) -> None:
        self.owners: list[str] = []
        self.is_away = self.is_late = False
        self.longest = 50

    async def embed(self, text: str, owner: str, most_tokens: int = 256) -> Embedding:
        self.owners.append(owner)
        if self.is_late:
            await asyncio.sleep(60)
        if self.is_away:
            raise EmbedderUnavailable("the embedder is away")
        vector = np.zeros(DIMENSIONS, np.float32)
        words = text.lower().replace("?", "").split()
        for word in words:
            vector[sum(word.encode()) % DIMENSIONS] += 1
        vector /= max(float(np.linalg.norm(vector)), 1e-9)
        return Embedding(vector.astype("<f4").tobytes(), len(words), len(words) <= self.longest)
