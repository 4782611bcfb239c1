"""The embedding noun in OpenAI's shape."""

from typing import Literal

import msgspec

from contracts.api.chat import InputRequest, PositiveInt
from contracts.api.token_inputs import TokenInput, count_of, entries_of
from contracts.metering.usage import OpenAIUsage

MAX_INPUTS = 2048


class EmbeddingRequest(InputRequest, frozen=True):
    """The body of POST /v1/embeddings. `input` is a text, texts, token ids, or lists of token ids."""

    input: TokenInput
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: PositiveInt | None = None

    @property
    def inputs(self) -> list[str | list[int]]:
        """Return what is to be embedded, one entry for each vector. Raises InvalidRequest on a mixture."""
        return entries_of("input", self.input)

    @property
    def input_count(self) -> int:
        """Return how many vectors the caller asks for."""
        return count_of(self.input)


class EmbeddingReply(msgspec.Struct, frozen=True, gc=False):
    """A whole answer of an upstream: only what accounting needs."""

    data: list[msgspec.Raw] | None = None
    usage: OpenAIUsage | None = None
    model: str | None = None
    system_fingerprint: str | None = None
