"""A request's body in the words of the API that it came in, for targets that speak that API themselves."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from contracts.errors import InvalidRequest

NativeApi = Literal["messages", "responses", "gemini"]

MODEL_IN_PATH: Final = "{model}"
# Where a target answers each API, below its url, which ends in /v1 (Gemini's: /v1beta).
NATIVE_PATHS: Final[Mapping[NativeApi, str]] = {
    "messages": "/messages",
    "responses": "/responses",
    "gemini": "/models/{model}:generateContent",
}
GEMINI_EMBED_PATH: Final = "/models/{model}:embedContent"
GEMINI_BATCH_EMBED_PATH: Final = "/models/{model}:batchEmbedContents"
GEMINI_STREAM_PATH: Final = "/models/{model}:streamGenerateContent?alt=sse"
# Fields that bound an answer, in the APIs that have them beside the prompt.
OUTPUT_FIELDS: Final[Mapping[NativeApi, str]] = {"messages": "max_tokens", "responses": "max_output_tokens"}
# Fields that hold what a model is told first.
SYSTEM_FIELDS: Final[Mapping[NativeApi, str]] = {
    "messages": "system",
    "responses": "instructions",
    "gemini": "systemInstruction",
}


class NativeBody(msgspec.Struct, frozen=True, kw_only=True):
    """What a target of the same API is sent: the body, and header lines such as `anthropic-beta`, each with its end.

    `refusal` is why a target of another API cannot take the request; `None`: its translation stands beside it.
    """

    api: NativeApi
    path: str
    body: bytes
    head: str = ""
    refusal: InvalidRequest | None = None
    fields: dict[str, msgspec.Raw] | None = None  # the body's own, where it has been taken apart


class NamedModel(msgspec.Struct, frozen=True):
    """The model that a body asks for."""

    model: str = ""
