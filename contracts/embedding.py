"""The embedding noun in OpenAI's shape."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from contracts.chat import PositiveInt
from contracts.errors import InvalidRequest
from contracts.usage import OpenAIUsage

MAX_INPUTS = 2048


class EmbeddingRequest(msgspec.Struct, frozen=True):
    """The body of POST /v1/embeddings. `input` is a text, texts, token ids, or lists of token ids."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: PositiveInt | None = None
    user: Annotated[str, Meta(max_length=256)] | None = None

    @property
    def is_streamed(self) -> bool:
        """Say that the answer comes whole."""
        return False

    @property
    def output_limit(self) -> int | None:
        """Give no limit: nothing is generated."""
        return None

    @property
    def choice_count(self) -> int:
        """Give one answer."""
        return 1

    @property
    def temperature(self) -> float | None:
        """Give none: nothing is sampled."""
        return None

    @property
    def inputs(self) -> list[str | list[int]]:
        """Give what is to be embedded, one entry for each vector. Raises InvalidRequest on a mixture."""
        if isinstance(self.input, str):
            return [self.input]
        numbers = [one for one in self.input if isinstance(one, int)]
        if not numbers:
            return [one for one in self.input if not isinstance(one, int)]
        if len(numbers) < len(self.input):
            raise InvalidRequest("input mixes token ids with other entries; send one list for each", param="input")
        return [numbers]

    @property
    def input_count(self) -> int:
        """Give how many vectors the caller asks for."""
        if isinstance(self.input, str) or (self.input and isinstance(self.input[0], int)):
            return 1
        return len(self.input)


class EmbeddingReply(msgspec.Struct, frozen=True, gc=False):
    """A whole answer of an upstream: only what accounting needs."""

    data: list[msgspec.Raw] | None = None
    usage: OpenAIUsage | None = None
    model: str | None = None
