"""The interface of embedders."""

from typing import Final, Protocol

import msgspec

MOST_TOKENS: Final = 256  # that the model reads; of a longer text, the first and the last ones
MOST_CHARACTERS: Final = 5121  # of a longer text only the beginning and the end are tokenized
DIMENSIONS: Final = 384


class Embedding(msgspec.Struct, frozen=True, gc=False):
    """A text's embedding: a vector of length 1, float32, little-endian, of `DIMENSIONS` values.

    `tokens` is how many were read. `is_whole` means that these were all, and that each was known: for other texts,
    equal vectors do not mean equal content.
    """

    vector: bytes
    tokens: int
    is_whole: bool


class Embedder(Protocol):
    """Computes embeddings. The same text gives the same vector, whatever is computed concurrently."""

    @property
    def identity(self) -> str:
        """Return the model's identity; only vectors with the same one can be compared. Empty before the first."""

    async def embed(self, text: str, owner: str, most_tokens: int = MOST_TOKENS) -> Embedding:
        """Embed one text. Vectors are cached for a while, each for its `owner` (a tenant) only.

        Raises EmbedderUnavailable if it cannot be computed now. Waits as long as necessary: cancel to give up.
        """
