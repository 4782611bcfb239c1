"""A target that speaks OpenAI's protocol over HTTP: vLLM, SGLang, TGI, a hosted provider, another gateway.

A stream's events go out as the bytes they came in; they are read only for accounting.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from backends.http_pool import HttpPool, Origin, Timeouts
from backends.llm.base import ModelCall, Sink
from backends.llm.openai_body import BodyFields, body_for
from backends.llm.sse import EventSplitter, data_of
from contracts.chat import ChatChunk, ChatReply, ChunkChoice
from contracts.configuration import TargetSpec
from contracts.embedding import EmbeddingReply, EmbeddingRequest
from contracts.errors import (
    ConfigurationError,
    InvalidUsage,
    TargetMisconfigured,
    TollkeeperError,
    UpstreamBroken,
    UpstreamError,
    UpstreamRateLimited,
    UpstreamRejected,
)
from contracts.generation import Continuation, Delta, Result
from contracts.records import CountMethod
from contracts.usage import UNKNOWN_USAGE, OpenAIUsage, Usage, usage_from_openai

_MAX_ERROR_BODY: Final = 64 * 1024
_MAX_ERROR_MESSAGE: Final = 500
_MAX_REPLY_BODY: Final = 256 * 1024 * 1024
# The request itself is at fault: another replica would say the same.
_REJECTIONS: Final = frozenset({400, 409, 413, 415, 422})
_DEFAULT_WAIT_SECONDS: Final = 1.0  # where a server limits our rate and does not say for how long

_chunk_decoder: Final = msgspec.json.Decoder(ChatChunk)
_reply_decoder: Final = msgspec.json.Decoder(ChatReply)
_embedding_decoder: Final = msgspec.json.Decoder(EmbeddingReply)


class _Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a target's settings may say. The timeouts are read by themselves, for the sake of what is said of them."""

    timeouts: object = None
    output_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    sends_reasoning_effort: bool = True
    sends_priority: bool = False


class OpenAIHttpTarget:
    """One OpenAI-compatible server. `spec.url` ends where `/chat/completions` begins, e.g. http://host:8000/v1."""

    def __init__(self, spec: TargetSpec, resolve_key: Callable[[str], str]) -> None:
        if not spec.url:
            raise ConfigurationError(f"target {spec.id!r} of kind openai_http needs a url, e.g. http://host:8000/v1")
        self.spec = spec
        self._fields = _body_fields(spec)
        self._pool = HttpPool(Origin.parse(spec.url), _timeouts(spec))
        key = resolve_key(spec.key_ref) if spec.key_ref else ""
        if not key.isascii() or any(character <= " " for character in key):
            raise ConfigurationError(
                f"the key of target {spec.id!r} ({spec.key_ref}) contains a space, a line end or non-ASCII characters"
            )
        authorization = f"authorization: Bearer {key}\r\n" if key else ""
        self._head_end = (
            f"host: {self._pool.origin.authority}\r\n{authorization}"
            "content-type: application/json\r\naccept: text/event-stream, application/json\r\n"
        )

    async def count_input(self, call: ModelCall) -> int | None:
        """Leave it open: only the server has the tokenizer."""
        return None

    async def call(self, call: ModelCall, sink: Sink) -> Result:
        """Forward the request and pass the reply on. Raises UpstreamError or UpstreamRejected."""
        body = body_for(call, self._fields)
        trace = f"traceparent: {call.trace_parent}\r\n" if call.trace_parent else ""
        head = (
            f"POST {self._pool.origin.prefix}{call.path} HTTP/1.1\r\n{self._head_end}{trace}"
            f"x-request-id: {call.request_id}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        embeds = isinstance(call.request, EmbeddingRequest)
        reader = _ReplyReader(self.spec.id, sink, is_streamed=call.request.is_streamed, embeds=embeds)
        exchange = await self._pool.send(head.encode("latin-1"), body, reader)
        sink.attach_flow(exchange.pause, exchange.resume)
        await exchange.finished()
        return reader.result()

    def can_continue(self, continuation: Continuation) -> bool:
        """Say no: the protocol has no way to ask for the rest of an answer."""
        return False

    async def close(self) -> None:
        """Close every connection to the server."""
        await self._pool.close()


class _ReplyReader:
    """Reads one reply as it arrives and hands it to the sink."""

    def __init__(self, target: str, sink: Sink, *, is_streamed: bool, embeds: bool = False) -> None:
        self._target = target
        self._embeds = embeds
        self._sink = sink
        self._is_streamed = is_streamed
        self._status = 0
        self._headers: Mapping[bytes, bytes] = {}
        self._events: EventSplitter | None = None
        self._pieces: list[bytes] = []
        self._collected = 0
        self._usage: Usage = UNKNOWN_USAGE
        self._count_method: CountMethod = "none"
        self._finish_reason = ""
        self._model = ""
        self._deltas = 0
        self._is_done = False

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status, self._headers = status, headers
        if status == 200 and self._is_streamed:
            if not headers.get(b"content-type", b"").lower().startswith(b"text/event-stream"):
                raise UpstreamBroken(f"target {self._target!r} answered a stream request with another content type")
            self._events = EventSplitter()

    def on_body(self, data: bytes) -> None:
        if self._events is not None:
            for event in self._events.feed(data):
                self._on_event(event)
            return
        self._collected += len(data)
        limit = _MAX_REPLY_BODY if self._status == 200 else _MAX_ERROR_BODY
        if self._collected > limit:
            raise UpstreamBroken(f"target {self._target!r} sent a reply of more than {limit} bytes")
        self._pieces.append(data)

    def result(self) -> Result:
        """Conclude the reply once it has ended."""
        if self._status != 200:
            raise self._error()
        if self._events is not None:
            # Some servers end their last line, [DONE], without the empty line that completes an event.
            rest = b"" if self._is_done else self._events.rest
            is_complete = self._is_done or bool(self._finish_reason) or data_of(rest) == b"[DONE]"
            if not is_complete or (rest and data_of(rest) != b"[DONE]"):
                raise UpstreamBroken(f"target {self._target!r} ended its stream before its answer was complete")
        else:
            self._conclude_whole(b"".join(self._pieces))
        return Result(
            usage=self._usage,
            count_method=self._count_method,
            finish_reason=self._finish_reason,
            model=self._model,
            gap_clock="gateway",
        )

    def _on_event(self, event: bytes) -> None:
        if self._is_done:
            return
        data = data_of(event)
        if data == b"[DONE]":
            self._is_done = True  # ours is written after settlement
            return
        if not data:
            return  # a comment that keeps the upstream connection alive means nothing to the client
        try:
            chunk = _chunk_decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamBroken(f"target {self._target!r} sent an event that is no chunk of an answer") from error
        if chunk.error and bytes(chunk.error) != b"null":
            raise UpstreamBroken(_message_in(data) or f"target {self._target!r} reported an error in its stream")
        if chunk.usage is not None:
            self._take_usage(chunk.usage)
        self._model = self._model or chunk.model or ""
        choices = chunk.choices or []
        deltas = tuple(_delta_of(choice) for choice in choices)
        for delta in deltas:
            self._deltas += delta.tokens
            self._finish_reason = delta.finish_reason or self._finish_reason
        self._sink.event(event, deltas, is_usage_only=chunk.usage is not None and not choices)

    def _conclude_whole(self, body: bytes) -> None:
        expected = "embedding reply" if self._embeds else "completion"
        try:
            reply = (_embedding_decoder if self._embeds else _reply_decoder).decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamBroken(f"target {self._target!r} sent a reply that is not a {expected}") from error
        content = reply.data if isinstance(reply, EmbeddingReply) else reply.choices
        if content is None:
            missing = "data" if self._embeds else "choices"
            raise UpstreamBroken(_message_in(body) or f"target {self._target!r} sent a reply without {missing}")
        if reply.usage is not None:
            self._take_usage(reply.usage)
        self._model = reply.model or ""
        if not isinstance(reply, EmbeddingReply):
            self._finish_reason = next((one.finish_reason for one in reply.choices or () if one.finish_reason), "")
        self._sink.whole(body)

    def _take_usage(self, reported: OpenAIUsage) -> None:
        # Some servers repeat cumulative usage on every chunk: the last report holds.
        try:
            self._usage = usage_from_openai(reported)
        except InvalidUsage:
            return  # contradictory: the reply stands, its usage stays unknown and visible as such
        self._count_method = "reported" if self._usage.is_known else "none"
        self._sink.report(self._usage, self._count_method)

    def _error(self) -> TollkeeperError:
        detail = _message_in(b"".join(self._pieces))
        said = f": {detail}" if detail else ""
        if self._status in _REJECTIONS:
            return UpstreamRejected(f"the model's server refused the request ({self._status}){said}")
        if self._status == 429:
            wait = _seconds(self._headers.get(b"retry-after"))
            return UpstreamRateLimited(
                f"target {self._target!r} is limiting the gateway's rate",
                retry_after_seconds=_DEFAULT_WAIT_SECONDS if wait is None else wait,
            )
        if self._status == 404:  # the model or the path: the target is set up wrong, another need not be
            return TargetMisconfigured(
                f"target {self._target!r} does not know the model or the path (404){said}", code="upstream_not_found"
            )
        if self._status in (401, 403):
            return TargetMisconfigured(
                f"target {self._target!r} refused the gateway's credentials", code="upstream_credentials_refused"
            )
        return UpstreamError(f"target {self._target!r} failed with status {self._status}")


def _delta_of(choice: ChunkChoice) -> Delta:
    delta = choice.delta
    if delta is None:
        return Delta(
            tokens=1 if choice.text else 0,
            text=choice.text or "",
            index=choice.index,
            finish_reason=choice.finish_reason,
        )
    return Delta(
        tokens=1 if delta.bears_tokens else 0,
        text=delta.text,
        reasoning=delta.reasoning_content or delta.reasoning or "",
        index=choice.index,
        finish_reason=choice.finish_reason,
        tool_calls=bytes(delta.tool_calls) if delta.tool_calls else b"",
        reasoning_tokens=1 if delta.is_reasoning else 0,
    )


class _ErrorDetail(msgspec.Struct):
    message: str | None = None


class _ErrorBody(msgspec.Struct):
    error: _ErrorDetail | str | None = None
    message: str | None = None  # vLLM before 0.10 put it at the top


def _message_in(body: bytes) -> str:
    try:
        parsed = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    error = parsed.error
    message = error.message if isinstance(error, _ErrorDetail) else error or parsed.message
    return (message or "")[:_MAX_ERROR_MESSAGE]


def _seconds(retry_after: bytes | None) -> float | None:
    try:
        seconds = float(retry_after) if retry_after is not None else None
    except ValueError:
        return None  # an HTTP date: rare from model servers, and the caller's default wait is as good
    return seconds if seconds is not None and 0 <= seconds < 86_400 else None


def _body_fields(spec: TargetSpec) -> BodyFields:
    try:
        given = msgspec.convert(spec.settings, _Settings)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"target {spec.id!r}, settings: {error}") from error
    return BodyFields(spec.model, given.output_limit_field, given.sends_reasoning_effort, given.sends_priority)


def _timeouts(spec: TargetSpec) -> Timeouts:
    given = spec.settings.get("timeouts", {})
    try:
        return msgspec.convert(given, Timeouts)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"target {spec.id!r}, timeouts: {error}") from error
