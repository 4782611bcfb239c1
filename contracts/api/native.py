"""A request's body in the format of its own API, for targets that speak that API."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from contracts.errors import InvalidRequest

NativeApi = Literal["messages", "responses", "gemini"]

MODEL_IN_PATH: Final = "{model}"
# Where a target answers each API, below its url, which ends in /v1 (Gemini: /v1beta).
NATIVE_PATHS: Final[Mapping[NativeApi, str]] = {
    "messages": "/messages",
    "responses": "/responses",
    "gemini": "/models/{model}:generateContent",
}
GEMINI_EMBED_PATH: Final = "/models/{model}:embedContent"
GEMINI_BATCH_EMBED_PATH: Final = "/models/{model}:batchEmbedContents"
GEMINI_STREAM_PATH: Final = "/models/{model}:streamGenerateContent?alt=sse"
# Fields that bound an answer, in APIs that have them beside the prompt.
OUTPUT_FIELDS: Final[Mapping[NativeApi, str]] = {"messages": "max_tokens", "responses": "max_output_tokens"}
# Fields that hold the model's instructions.
SYSTEM_FIELDS: Final[Mapping[NativeApi, str]] = {
    "messages": "system",
    "responses": "instructions",
    "gemini": "systemInstruction",
}


class NativeBody(msgspec.Struct, frozen=True, kw_only=True):
    """What a target that speaks the same API is sent: the body, and header lines such as `anthropic-beta`, each with
    its line end.

    `refusal` is why a target of another API cannot accept the request; `None`: there is a translation.
    """

    api: NativeApi
    path: str
    body: bytes
    head: str = ""
    refusal: InvalidRequest | None = None
    fields: dict[str, msgspec.Raw] | None = None  # the body's own, if it has been parsed


class NamedModel(msgspec.Struct, frozen=True):
    """The model that a body asks for."""

    model: str = ""
