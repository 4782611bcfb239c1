"""The embedding noun in OpenAI's shape."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from contracts.chat import PositiveInt
from contracts.token_inputs import TokenInput, count_of, entries_of
from contracts.usage import OpenAIUsage

MAX_INPUTS = 2048


class EmbeddingRequest(msgspec.Struct, frozen=True):
    """The body of POST /v1/embeddings. `input` is a text, texts, token ids, or lists of token ids."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    input: TokenInput
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
        return entries_of("input", self.input)

    @property
    def input_count(self) -> int:
        """Give how many vectors the caller asks for."""
        return count_of(self.input)


class EmbeddingReply(msgspec.Struct, frozen=True, gc=False):
    """A whole answer of an upstream: only what accounting needs."""

    data: list[msgspec.Raw] | None = None
    usage: OpenAIUsage | None = None
    model: str | None = None
    system_fingerprint: str | None = None
