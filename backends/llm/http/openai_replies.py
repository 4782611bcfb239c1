"""Parses whole replies and errors of OpenAI-compatible servers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from backends.llm.echoed_credentials import without_credentials
from contracts.api.chat import ChatReply
from contracts.api.embedding import EmbeddingReply, EmbeddingRequest, TranslatedEmbedding
from contracts.api.requests import AnyRequest
from contracts.api.rerank import PairReply, RerankRequest, ScoreRequest
from contracts.errors import InvalidUsage, UpstreamBroken
from contracts.metering.least_tokens import least_tokens
from contracts.metering.openai_usage import usage_from_openai
from contracts.metering.usage import Usage

AnyReply = ChatReply | EmbeddingReply | PairReply
_AnyDecoder = msgspec.json.Decoder[ChatReply] | msgspec.json.Decoder[EmbeddingReply] | msgspec.json.Decoder[PairReply]


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """The format of the reply to one kind of request: its name in errors, its required field, and its decoder."""

    name: str
    content: str
    decoder: _AnyDecoder


GENERATED: Final = ReplyForm("completion", "choices", msgspec.json.Decoder(ChatReply))
EMBEDDED: Final = ReplyForm("embedding reply", "data", msgspec.json.Decoder(EmbeddingReply))
_pair_decoder: Final = msgspec.json.Decoder(PairReply)
_FORMS: Final[Mapping[type, ReplyForm]] = {
    EmbeddingRequest: EMBEDDED,
    TranslatedEmbedding: EMBEDDED,
    RerankRequest: ReplyForm("rerank reply", "results", _pair_decoder),
    ScoreRequest: ReplyForm("score reply", "data", _pair_decoder),
}


class _Message(msgspec.Struct, frozen=True):
    content: msgspec.Raw = msgspec.Raw()
    reasoning_content: msgspec.Raw = msgspec.Raw()
    reasoning: msgspec.Raw = msgspec.Raw()  # the name in OpenRouter and newer vLLM
    tool_calls: msgspec.Raw = msgspec.Raw()
    refusal: msgspec.Raw = msgspec.Raw()


class _Choice(msgspec.Struct, frozen=True):
    message: _Message = _Message()
    text: msgspec.Raw = msgspec.Raw()


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []


_answers: Final = msgspec.json.Decoder(_Answer)
_NOTHING: Final = (b"", b"null", b'""', b"[]")
_MAX_ERROR_MESSAGE: Final = 500
_MAX_SEARCHED: Final = 16 * 1024


def answer_size(body: bytes) -> tuple[int | None, int]:
    """Return the bytes of a generated answer's content as JSON and the words of its texts.

    Bytes are `None` if it has no content or cannot be parsed.
    """
    try:
        choices = _answers.decode(body).choices
    except (msgspec.MsgspecError, RecursionError):
        return None, 0
    parts = [part for one in choices for part in _parts(one) if part not in _NOTHING]
    words = [least_tokens(part.decode(errors="replace")) for part in parts if part.startswith(b'"')]
    return sum(map(len, parts)) or None, sum(words)


def _parts(choice: _Choice) -> list[bytes]:
    said = choice.message
    thought = bytes(said.reasoning_content)
    if thought in _NOTHING:  # servers that send both fields send the same in both
        thought = bytes(said.reasoning)
    return [bytes(choice.text), bytes(said.content), thought, bytes(said.tool_calls), bytes(said.refusal)]


def form_for(request: AnyRequest) -> ReplyForm:
    """Return the format of the reply to a request."""
    return _FORMS.get(type(request), GENERATED)


def usage_in(reply: AnyReply) -> Usage | None:
    """Return the usage that a reply states; `None` if it states none or a contradictory one."""
    try:
        if isinstance(reply, PairReply):
            return reply.reported
        return None if reply.usage is None else usage_from_openai(reply.usage)
    except InvalidUsage:
        return None


def broken(quote: str, otherwise: str) -> UpstreamBroken:
    """Return the error of an interrupted reply, with the server's message `quote`, or else `otherwise`."""
    error = UpstreamBroken(quote or otherwise)
    error.quote = quote
    return error


class _ErrorDetail(msgspec.Struct):
    message: str | None = None
    type: str | int | None = None


class _ErrorBody(msgspec.Struct):
    error: _ErrorDetail | str | None = None
    message: str | None = None  # vLLM before 0.10 put it at the top
    type: str | int | None = None


def message_in(body: bytes, sent: Iterable[str]) -> str:
    """Return the message of an error in OpenAI's format, at most 500 characters; empty if there is none.

    Credentials that were `sent`, and anything that looks like one, are removed.
    """
    try:
        parsed = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    error = parsed.error
    message = error.message if isinstance(error, _ErrorDetail) else error or parsed.message
    # Truncated after the removal, which would not find half a key.
    return without_credentials(message[:_MAX_SEARCHED], sent)[:_MAX_ERROR_MESSAGE] if message else ""


def type_in(body: bytes) -> str:
    """Return the type of an error in OpenAI's format, such as "server_error"; empty if there is none."""
    try:
        parsed = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    kind = parsed.error.type if isinstance(parsed.error, _ErrorDetail) else parsed.type
    return kind if isinstance(kind, str) else ""
