"""The seam to what makes vectors of texts."""

from typing import Final, Protocol

import msgspec

MOST_TOKENS: Final = 256  # what the model was made to read; the first and the last of a longer text are read
MOST_CHARACTERS: Final = 5121  # of a longer text only the beginning and the end are looked at at all
DIMENSIONS: Final = 384


class Embedding(msgspec.Struct, frozen=True, gc=False):
    """A text's meaning: a vector of length 1, float32, little-endian, `DIMENSIONS` of them.

    `tokens` is how many were read. `is_whole` says that these were all, and each of them known: of two texts that are
    not, equal vectors do not mean that they say the same.
    """

    vector: bytes
    tokens: int
    is_whole: bool


class Embedder(Protocol):
    """Makes vectors of texts. The same text gives the same vector, whatever else is asked for at the same time."""

    @property
    def identity(self) -> str:
        """Return what makes the vectors; only those of the same can be compared. Empty before the first."""

    async def embed(self, text: str, owner: str, most_tokens: int = MOST_TOKENS) -> Embedding:
        """Embed one text. Vectors are kept for a while, each for its `owner` (a tenant) alone.

        Raises EmbedderUnavailable if none can be made now. Waits as long as it takes: give up by cancelling.
        """
