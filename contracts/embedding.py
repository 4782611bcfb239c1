"""The embedding noun in OpenAI's shape."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from contracts.chat import PositiveInt

MAX_INPUTS = 2048


class EmbeddingRequest(msgspec.Struct, frozen=True):
    """The body of POST /v1/embeddings. `input` is a text, texts, token ids, or lists of token ids."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: PositiveInt | None = None
    user: Annotated[str, Meta(max_length=256)] | None = None

    @property
    def input_count(self) -> int:
        """Give how many vectors the caller asks for."""
        if isinstance(self.input, str) or (self.input and isinstance(self.input[0], int)):
            return 1
        return len(self.input)
