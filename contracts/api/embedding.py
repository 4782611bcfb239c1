"""The embedding noun in OpenAI's shape."""

from typing import Literal

import msgspec

from contracts.api.chat import InputRequest, PositiveInt
from contracts.api.completion import TokenInput, count_of, entries_of
from contracts.api.native import NativeBody
from contracts.errors import InvalidRequest
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


class TranslatedEmbedding(EmbeddingRequest, frozen=True, kw_only=True):
    """Embeddings that were asked for in the words of another API: Google's.

    `embedding_body` is the body of /v1/embeddings. `native` is for targets that speak the API themselves; with a
    `refusal` in it nothing else can take the request. `unless_dropped` is why others refuse it, unless their settings
    let them drop what they have no field for.
    """

    embedding_body: bytes
    native: NativeBody | None = None
    unless_dropped: InvalidRequest | None = None


class EmbeddingReply(msgspec.Struct, frozen=True, gc=False):
    """A whole answer of an upstream: only what accounting needs."""

    data: list[msgspec.Raw] | None = None
    usage: OpenAIUsage | None = None
    model: str | None = None
    system_fingerprint: str | None = None
