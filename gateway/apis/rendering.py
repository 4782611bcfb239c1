"""Renders OpenAI's JSON: errors, complete answers, stream chunks. Pure functions."""

import re
import struct
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import msgspec

from contracts.api.generation import Delta, Vectors
from contracts.engine.wire import TokenLogprob
from contracts.errors import TollkeeperError, UpstreamBroken
from contracts.metering.openai_usage import openai_usage
from contracts.metering.usage import Usage
from gateway.wire.exchange import Headers

_encoder: Final = msgspec.json.Encoder()
_string: Final = _encoder.encode

DONE: Final = b"data: [DONE]\n\n"
_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,60}")  # what a server may call an error's type: no address, no text
_TEXT_TAIL: Final = b'},"logprobs":null,"finish_reason":null}]}\n\n'
LEAST_LOGPROB: Final = -9999.0


def error_object(error: TollkeeperError) -> dict[str, object]:
    """Return an error as OpenAI's error object. If a server that speaks the caller's API reported it, its type and code
    are kept.
    """
    kind, code = error.kind, error.error_code
    if error.upstream_code:
        said = error.upstream_type
        kind, code = said if _WORD.fullmatch(said) else kind, error.upstream_code
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": code}}


def error_body(error: TollkeeperError) -> bytes:
    """Render an error as a JSON body."""
    return _encoder.encode(error_object(error))


def error_event(error: TollkeeperError) -> bytes:
    """Render an error as the event that ends a stream in progress, with the number of tokens sent so far."""
    if error.reached_tokens is None:
        return b"data: %b\n\n" % error_body(error)
    told = error_object(error)
    told["reached_tokens"] = error.reached_tokens
    return b"data: %b\n\n" % _encoder.encode(told)


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """How an API renders an error: as a body, and as the event that ends a stream in progress.

    Without an event such a stream is aborted.
    """

    body: Callable[[TollkeeperError], bytes]
    event: Callable[[TollkeeperError], bytes] | None
    status: Callable[[TollkeeperError], int] = attrgetter("status")
    # Gives the shape of one request's errors by the headers that they have, and further headers for them.
    of_request: "Callable[[Headers], tuple[ErrorShape, Headers]] | None" = None


OPENAI_ERRORS: Final = ErrorShape(error_body, error_event)


class AnswerRenderer(ABC):
    """Renders one answer in an API's format, in chunks or complete."""

    @abstractmethod
    def opening(self, index: int) -> bytes:
        """Render the chunk that starts a choice's stream."""

    @abstractmethod
    def delta(self, delta: Delta) -> bytes:
        """Render a delta of one choice, and its end if the delta has one; nothing if there is no content yet."""

    def text_frame(self, index: int) -> tuple[bytes, bytes] | None:
        """Return the JSON before and after the text, in a chunk with text only; `None` if it varies."""
        return None

    @abstractmethod
    def new_choice(self) -> "WholeText":
        """Return an empty choice of a complete answer, to assemble."""

    @abstractmethod
    def ending(self, index: int, why: TollkeeperError) -> bytes:
        """Render the chunk that ends a choice that the gateway cut, with the reason."""

    @abstractmethod
    def closing(self, usage: Usage, *, wants_usage: bool) -> bytes:
        """Render the end of a complete answer's stream."""

    @abstractmethod
    def whole(self, choices: "Sequence[WholeText]", usage: Usage) -> bytes:
        """Render a complete answer."""


class OpenAIRenderer(AnswerRenderer):
    """Renders the format that OpenAI's chats and completions share. The common part of all chunks is encoded once."""

    def __init__(self, names: tuple[str, str], reply_id: str, created_unix: int, model: str) -> None:
        """Accept the facts of a reply. `names` are the API's `object` names of a complete answer and of a chunk."""
        self._whole_name, self._chunk_name = names
        self._reply_id = reply_id
        self._created_unix = created_unix
        self._model = model
        self._known_prefix = b""
        self._text_heads: dict[int, bytes] = {}  # by choice: all of a chunk before its text

    @property
    def _prefix(self) -> bytes:
        """Return the common start of all chunks, rendered with the first one: most answers have no chunks."""
        if not self._known_prefix:
            self._known_prefix = b'data: {"id":%b,"object":%b,"created":%d,"model":%b,' % (
                _string(self._reply_id),
                _string(self._chunk_name),
                self._created_unix,
                _string(self._model),
            )
        return self._known_prefix

    def closing(self, usage: Usage, *, wants_usage: bool) -> bytes:
        """Render the stream's last event, after the usage chunk that `stream_options.include_usage` asks for."""
        if not wants_usage:
            return DONE
        return self._prefix + b'"choices":[],"usage":' + _encoder.encode(openai_usage(usage)) + b"}\n\n" + DONE

    def ending(self, index: int, why: TollkeeperError) -> bytes:
        """Render the chunk that ends a choice that the gateway cut, with the reason."""
        chunk = self.delta(Delta(tokens=0, index=index, finish_reason=why.ends_with))
        cause = _encoder.encode({"ended_by": {"code": why.error_code, "message": why.message}})
        return b'%b,"tollkeeper":%b}\n\n' % (chunk.removesuffix(b"}\n\n"), cause)

    def whole(self, choices: "Sequence[WholeText]", usage: Usage) -> bytes:
        """Render a complete answer."""
        return _encoder.encode(
            {
                "id": self._reply_id,
                "object": self._whole_name,
                "created": self._created_unix,
                "model": self._model,
                "choices": [choice.rendered(index) for index, choice in enumerate(choices)],
                "usage": openai_usage(usage),
            }
        )


class ChatRenderer(OpenAIRenderer):
    """Renders a chat's answer."""

    def __init__(self, reply_id: str, created_unix: int, model: str) -> None:
        super().__init__(("chat.completion", "chat.completion.chunk"), reply_id, created_unix, model)

    def new_choice(self) -> "WholeChoice":
        """Return an empty choice of a complete answer, to assemble."""
        return WholeChoice()

    def opening(self, index: int) -> bytes:
        """Render the chunk that opens a choice."""
        return self._choice(index, b'{"role":"assistant","content":""}', b"null", b"null")

    def delta(self, delta: Delta) -> bytes:
        """Render a delta of one choice, and its end if the delta has one; nothing if there is no content yet."""
        text, reason = delta.text, delta.finish_reason
        if not (reason or delta.reasoning or delta.tool_calls or delta.logprobs or delta.refusal):
            # Nearly all deltas: a few words, whose chunk is these words between two constants.
            return self._text_head(delta.index) + _string(text) + _TEXT_TAIL if text else b""
        fields = []
        if delta.reasoning:
            fields.append(b'"reasoning_content":' + _string(delta.reasoning))
        if text:
            fields.append(b'"content":' + _string(text))
        if delta.refusal:
            fields.append(b'"refusal":' + _string(delta.refusal))
        if delta.tool_calls:
            fields.append(b'"tool_calls":' + delta.tool_calls)
        logprobs = _encoder.encode(_logprobs(delta.logprobs)) if delta.logprobs else b"null"
        finish = _string(reason) if reason else b"null"
        return self._choice(delta.index, b"{" + b",".join(fields) + b"}", logprobs, finish)

    def text_frame(self, index: int) -> tuple[bytes, bytes]:
        """Return the JSON before and after the text in a chunk with text only."""
        return self._text_head(index), _TEXT_TAIL

    def _text_head(self, index: int) -> bytes:
        head = self._text_heads.get(index)
        if head is None:
            opening = b'"choices":[{"index":%d,"delta":{"content":' % index
            head = self._text_heads[index] = self._prefix + opening
        return head

    def _choice(self, index: int, delta: bytes, logprobs: bytes, finish: bytes) -> bytes:
        return self._prefix + b'"choices":[{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b}]}\n\n' % (
            index,
            delta,
            logprobs,
            finish,
        )


class _CallFunction(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class _CallPiece(msgspec.Struct):
    index: int = 0
    id: str = ""
    function: _CallFunction = msgspec.field(default_factory=_CallFunction)


_calls_decoder: Final = msgspec.json.Decoder(list[_CallPiece])


class WholeText(ABC):
    """One choice of a complete answer while it is assembled."""

    __slots__ = ("_logprobs", "_text", "finish_reason")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self.finish_reason: str | None = None

    def take(self, delta: Delta) -> None:
        """Add a piece. Raises UpstreamBroken on one that cannot be read."""
        if delta.text:
            self._text.append(delta.text)
        if delta.logprobs:
            self._logprobs.extend(delta.logprobs)
        self.finish_reason = delta.finish_reason or self.finish_reason

    @property
    def spoken(self) -> str | None:
        """Return the text so far; `None` for a choice without text."""
        return "".join(self._text)

    @abstractmethod
    def rendered(self, index: int) -> dict[str, object]:
        """Return the choice in the API's shape."""


class WholeChoice(WholeText):
    """One choice of a complete chat answer."""

    __slots__ = ("_calls", "_reasoning")

    def __init__(self) -> None:
        super().__init__()
        self._reasoning: list[str] = []
        self._calls: dict[int, _CallPiece] = {}

    def take(self, delta: Delta) -> None:
        """Add a delta. Raises UpstreamBroken on invalid tool calls."""
        super().take(delta)
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
        if delta.tool_calls:
            self._take_calls(delta.tool_calls)

    @property
    def spoken(self) -> str | None:
        """Return the text; `None` if the choice calls tools."""
        return None if self._calls else super().spoken

    def rendered(self, index: int) -> dict[str, object]:
        """Return the choice in OpenAI's shape."""
        return {
            "index": index,
            "message": self._message(),
            "logprobs": _logprobs(self._logprobs) if self._logprobs else None,
            "finish_reason": self.finish_reason,
        }

    def _message(self) -> dict[str, object]:
        text = "".join(self._text)
        message: dict[str, object] = {
            "role": "assistant",
            "content": None if self._calls and not text else text,
            "refusal": None,
        }
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": call.function} for call in self._calls.values()
            ]
        return message

    def _take_calls(self, pieces: bytes) -> None:
        try:
            found = _calls_decoder.decode(pieces)
        except msgspec.MsgspecError as error:
            raise UpstreamBroken("the target sent tool calls that cannot be read") from error
        for piece in found:
            call = self._calls.setdefault(piece.index, _CallPiece(piece.index))
            call.id = call.id or piece.id
            call.function.name += piece.function.name
            call.function.arguments += piece.function.arguments


def _logprobs(tokens: list[TokenLogprob]) -> dict[str, object]:
    return {
        "content": [
            {
                **_logprob(token.text, token.logprob),
                "top_logprobs": [_logprob(text, logprob) for _, text, logprob in token.top],
            }
            for token in tokens
        ],
        "refusal": None,
    }


def _logprob(text: str, logprob: float) -> dict[str, object]:
    # JSON has no infinities; OpenAI's own floor for what was practically impossible is -9999.
    return {"token": text, "logprob": max(logprob, LEAST_LOGPROB), "bytes": list(text.encode())}


def embedding_reply(model: str, vectors: Vectors, usage: Usage, *, as_base64: bool) -> bytes:
    """Render embeddings as numbers, or as base64 of their float32 values, which OpenAI's SDKs request by default."""
    size = 4 * vectors.dimensions
    pieces = [vectors.data[start : start + size] for start in range(0, len(vectors.data), size)]
    encode = (lambda piece: b64encode(piece).decode()) if as_base64 else _floats
    tokens = usage.input_tokens or 0
    return _encoder.encode(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": encode(piece)}
                for index, piece in enumerate(pieces)
            ],
            "model": model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


def floats_of(vectors: Vectors) -> list[list[float]]:
    """Return vectors as lists of numbers."""
    size = 4 * vectors.dimensions
    return [_floats(vectors.data[start : start + size]) for start in range(0, len(vectors.data), size)]


def _floats(piece: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(piece) // 4}f", piece))


def model_list(models: list[tuple[str, int]]) -> bytes:
    """Render GET /v1/models from pairs of model id and Unix time of creation."""
    return _encoder.encode({"object": "list", "data": [_model(name, created) for name, created in models]})


def model_object(name: str, created_unix: int) -> bytes:
    """Render GET /v1/models/{id}."""
    return _encoder.encode(_model(name, created_unix))


def _model(name: str, created_unix: int) -> dict[str, object]:
    return {"id": name, "object": "model", "created": created_unix, "owned_by": "tollkeeper"}
