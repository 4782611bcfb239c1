"""The embedding types in OpenAI's format."""

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
        """Return the inputs, one entry for each vector. Raises InvalidRequest if token ids are mixed with other
        entries.
        """
        return entries_of("input", self.input)

    @property
    def input_count(self) -> int:
        """Return the number of vectors that the caller asks for."""
        return count_of(self.input)


class TranslatedEmbedding(EmbeddingRequest, frozen=True, kw_only=True):
    """An embedding request made through another API: Google's.

    `embedding_body` is the body for /v1/embeddings. `native` is for targets that speak the API themselves; if it has a
    `refusal`, no other target can accept the request. `unless_dropped` is the error with which other targets refuse it,
    unless their settings allow dropping fields that they do not have.
    """

    embedding_body: bytes
    native: NativeBody | None = None
    unless_dropped: InvalidRequest | None = None


class EmbeddingReply(msgspec.Struct, frozen=True, gc=False):
    """A complete answer of an upstream: only the fields needed for accounting."""

    data: list[msgspec.Raw] | None = None
    usage: OpenAIUsage | None = None
    model: str | None = None
    system_fingerprint: str | None = None
