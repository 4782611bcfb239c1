"""Answers of APIs that are passed through: the fields that the gateway reads for accounting.

Usage objects stay JSON here: the accounting code decodes them once, and stores them unchanged.
"""

from typing import Any, Final

import msgspec

_NONE: Final = msgspec.Raw()


class NativeError(msgspec.Struct, frozen=True):
    """An error, in the API's own error object."""

    type: str | None = None
    code: str | None = None
    message: str | None = None


class NativeErrorBody(msgspec.Struct, frozen=True):
    """A body, or a part of an event, that contains an error."""

    error: NativeError | None = None


class MessageBlock(msgspec.Struct, frozen=True):
    """A block of a message: only the fields needed for accounting."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    data: str | None = None


class MessageDelta(msgspec.Struct, frozen=True):
    """A piece of a block, or a message's end."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None


class MessageBody(msgspec.Struct, frozen=True):
    """A message, complete or as its stream starts."""

    content: list[MessageBlock] | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: msgspec.Raw = _NONE


class MessageEvent(msgspec.Struct, frozen=True):
    """An event of a message's stream."""

    type: str = ""
    index: int = 0
    message: MessageBody | None = None
    content_block: MessageBlock | None = None
    delta: MessageDelta | None = None
    usage: msgspec.Raw = _NONE


class ResponseItem(msgspec.Struct, frozen=True):
    """An item of a response's output: only the fields needed for accounting."""

    type: str = ""
    call_id: str | None = None
    name: str | None = None


class Incomplete(msgspec.Struct, frozen=True):
    """Why a response is incomplete."""

    reason: str | None = None


class ResponseBody(msgspec.Struct, frozen=True):
    """A response, complete or as its stream reports it."""

    model: str | None = None
    status: str | None = None
    incomplete_details: Incomplete | None = None
    output: list[ResponseItem] | None = None
    usage: msgspec.Raw = _NONE
    service_tier: str | None = None
    error: NativeError | None = None


class ResponseEvent(msgspec.Struct, frozen=True):
    """An event of a response's stream."""

    type: str = ""
    output_index: int = 0
    delta: str | msgspec.Raw | None = None
    item: ResponseItem | None = None
    response: ResponseBody | None = None


class FailedEvent(msgspec.Struct, frozen=True):
    """An event that reports an error, at the top level or in the response."""

    response: NativeErrorBody | None = None
    error: NativeError | None = None
    code: str | None = None
    message: str | None = None


class GeminiCalled(msgspec.Struct, frozen=True):
    """A function call."""

    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class GeminiPiece(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a candidate: only the fields needed for accounting."""

    text: str | None = None
    thought: bool | None = None
    function_call: GeminiCalled | None = None


class GeminiSaid(msgspec.Struct, frozen=True):
    """The content of a candidate."""

    parts: list[GeminiPiece] = []


class GeminiCandidate(msgspec.Struct, frozen=True, rename="camel"):
    """One of the answers, or a piece of it."""

    content: GeminiSaid | None = None
    finish_reason: str | None = None
    index: int = 0


class GeminiEmbeddings(msgspec.Struct, frozen=True, rename="camel"):
    """An answer of embedContent or batchEmbedContents: only the fields needed for accounting."""

    embedding: dict[str, msgspec.Raw] | None = None
    embeddings: list[msgspec.Raw] | None = None
    usage_metadata: msgspec.Raw = _NONE


class GeminiAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """A response of the Gemini API, complete or part of a stream."""

    candidates: list[GeminiCandidate] | None = None
    prompt_feedback: dict[str, Any] | None = None
    usage_metadata: msgspec.Raw = _NONE
    model_version: str | None = None
    error: dict[str, Any] | None = None
