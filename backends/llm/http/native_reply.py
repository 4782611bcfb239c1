"""Reads replies of servers that speak the client's own API for accounting; their bytes are passed on unchanged."""

import contextlib
import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from backends.llm.base import Sink
from backends.llm.http.http_reply import ReplyReader
from backends.llm.http.openai_replies import broken
from backends.llm.http.sse import data_of
from contracts.api.generation import Delta, Result
from contracts.api.native_answers import (
    FailedEvent,
    MessageBlock,
    MessageBody,
    MessageDelta,
    MessageEvent,
    NativeError,
    NativeErrorBody,
    ResponseBody,
    ResponseEvent,
)
from contracts.api.requests import AnyRequest
from contracts.errors import InvalidUsage, TargetMisconfigured, TollkeeperError, UpstreamBroken, UpstreamOverloaded
from contracts.metering.least_tokens import least_tokens
from contracts.metering.native_reports import MessagesUsage, ResponsesUsage
from contracts.metering.native_usage import (
    NOTHING_STATED,
    updated_usage,
    usage_from_messages,
    usage_from_responses,
)
from contracts.serving.configuration import TargetSpec

_OVERLOADED: Final = 529  # Anthropic's
_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,60}")
_encode: Final = msgspec.json.Encoder().encode
_MAX_USAGE_BYTES: Final = 4096  # of the usage object in a record
_NONE: Final[tuple[Delta, ...]] = ()
_errors: Final = msgspec.json.Decoder(NativeErrorBody)
_objects: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NO_USAGE: Final = (b"", b"null")
_MAX_KEPT: Final = 8  # usage objects of one stream, before they are joined
UsageT = TypeVar("UsageT")


class NativeReader(ReplyReader):
    """Common part of the readers of native APIs."""

    def __init__(self, spec: TargetSpec, sink: Sink, request: AnyRequest, sent_credentials: tuple[str, ...]) -> None:
        super().__init__(spec, sink, request, None, sent_credentials=sent_credentials)
        self._native_sink = sink
        self._lessons = 1 << 30  # look for no chunk shapes, which exist only for OpenAI's chat format
        self._is_announced = False
        self._said_usages: list[bytes] = []  # unparsed; fields of later ones replace those of earlier ones

    def account(self) -> Result:
        """Return the account, with the usage as the provider reported it. Call `conclude` before."""
        said = _joined(self._said_usages)
        self.stated_cost = said.decode("utf-8", "replace") if len(said) <= _MAX_USAGE_BYTES else ""
        return super().account()

    def take_event(self, event: bytes) -> None:
        """Process one complete server-sent event. Raises UpstreamBroken if it is an error or cannot be parsed."""
        if self.is_done:
            return
        data = data_of(event)
        if not data:
            return  # a comment that keeps the connection alive
        self._announce()
        try:
            deltas = self._deltas_in(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamBroken(f"target {self._target!r} sent an event that cannot be read") from error
        for delta in deltas:
            if delta.finish_reason is not None:
                self.finish_reason = delta.finish_reason
                self.advances += 1
            self.advances += delta.tokens
            self._tokens += delta.tokens
        self._native_sink.event(event, deltas, is_usage_only=False)

    def take_whole(self, body: bytes) -> None:
        """Process a whole reply. Raises UpstreamBroken if it is not valid."""
        self._announce()
        try:
            self._read_whole(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamBroken(f"target {self._target!r} sent a reply that cannot be read") from error
        self._native_sink.whole(body)

    def _deltas_in(self, data: bytes) -> tuple[Delta, ...]:
        """Return an event's deltas, and record what else the gateway needs of it."""
        return _NONE

    def _read_whole(self, body: bytes) -> None:
        """Record a whole reply's usage and end."""

    def _read_usage(self, said: msgspec.Raw, decode: Callable[[bytes], UsageT]) -> UsageT | None:
        """Return a usage object, and keep its JSON; `None` if there is none.

        An unreadable one is kept too: the reply stays valid, and its usage is unknown.
        """
        usage = bytes(said)
        if usage in _NO_USAGE:
            return None
        read: UsageT | None = None
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            read = decode(usage)
        if usage.startswith(b"{"):
            self._keep_usage(usage)
        return read

    def _keep_usage(self, usage: bytes) -> None:
        """Keep a usage object besides the earlier ones."""
        if len(self._said_usages) >= _MAX_KEPT:
            self._said_usages = [_joined(self._said_usages)]
        self._said_usages.append(usage)

    def _announce(self) -> None:
        """Tell the sink, before the first output, that the answer is in the client's own API."""
        if not self._is_announced:
            self._is_announced = True
            self._native_sink.native()

    def _error(self) -> TollkeeperError:
        error = super()._error()
        if not isinstance(error, TargetMisconfigured):  # concerns the gateway's account, not the request
            error.upstream_code = _code_of(_said_in(self._whole_body()))
        return error

    def _status_error(self, detail: str) -> TollkeeperError:
        error = super()._status_error(detail)
        if self._status == _OVERLOADED:
            return UpstreamOverloaded(error.message, retry_after_seconds=error.retry_after_seconds)
        return error

    def _broken_by(self, data: bytes) -> UpstreamBroken:
        """Return the error that an event of the stream reports."""
        error = broken(self._message_in(data), f"target {self._target!r} reported an error in its stream")
        said = _said_in(data)
        if said is not None:
            error.upstream_type = said.type or ""
            error.upstream_code = _code_of(said)
        return error


def _joined(usages: list[bytes]) -> bytes:
    """Merge usage objects into one; empty if there are none."""
    if len(usages) < 2:
        return usages[0] if usages else b""
    fields: dict[str, msgspec.Raw] = {}
    for usage in usages:
        fields.update(_objects.decode(usage))
    return _encode(fields)


def _said_in(body: bytes) -> NativeError | None:
    try:
        return _errors.decode(body).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _code_of(said: NativeError | None) -> str:
    return said.code if said is not None and said.code and _CODE.fullmatch(said.code) else ""


# Anthropic's Messages API


_message_events: Final = msgspec.json.Decoder(MessageEvent)
_messages: Final = msgspec.json.Decoder(MessageBody)
_message_usages: Final = msgspec.json.Decoder(MessagesUsage).decode
_STOPS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class MessagesReader(NativeReader):
    """Reads a reply in Anthropic's Messages API, whole or as events."""

    def __init__(self, spec: TargetSpec, sink: Sink, request: AnyRequest, sent_credentials: tuple[str, ...]) -> None:
        super().__init__(spec, sink, request, sent_credentials)
        self._stated = NOTHING_STATED
        self._calls: dict[int, int] = {}  # number of the tool call by index of its block

    def _deltas_in(self, data: bytes) -> tuple[Delta, ...]:
        event = _message_events.decode(data)
        kind = event.type
        if kind == "content_block_delta" and event.delta is not None:
            return self._piece(event.index, event.delta)
        if kind == "content_block_start" and event.content_block is not None:
            return self._begun(event.index, event.content_block)
        if kind == "message_start" and event.message is not None:
            self._name(event.message.model, None)
            self._take_reported(_without_output(self._read_usage(event.message.usage, _message_usages)))
        elif kind == "message_delta" and event.delta is not None:
            self._take_reported(self._read_usage(event.usage, _message_usages))
            if event.delta.stop_reason is not None:
                return (_end_of(event.delta.stop_reason, event.delta.stop_sequence),)
        elif kind == "message_stop":
            self.is_done = True
            self.advances += 1
        elif kind == "error":
            raise self._broken_by(data)
        return _NONE

    def _piece(self, index: int, delta: MessageDelta) -> tuple[Delta, ...]:
        if delta.text:
            return (Delta(least_tokens(delta.text), delta.text),)
        if delta.thinking:
            tokens = least_tokens(delta.thinking)
            return (Delta(tokens, reasoning=delta.thinking, reasoning_tokens=tokens),)
        if delta.partial_json:
            place = self._calls.get(index)
            if place is None:  # the call of a tool that the provider runs
                return (Delta(1),)
            return (Delta(least_tokens(delta.partial_json), tool_calls=_arguments(place, delta.partial_json)),)
        if delta.signature:
            return (Delta(0, thinking_blocks=_thought("", delta.signature)),)
        return _NONE

    def _begun(self, index: int, block: MessageBlock) -> tuple[Delta, ...]:
        if block.type == "tool_use":
            place = self._calls[index] = len(self._calls)
            return (Delta(1, tool_calls=_call(place, block.id, block.name, "")),)
        if block.type == "redacted_thinking" and block.data:
            return (Delta(0, thinking_blocks=_encode([{"type": "redacted_thinking", "data": block.data}])),)
        if block.type == "text" and block.text:
            return (Delta(least_tokens(block.text), block.text),)
        return _NONE

    def _read_whole(self, body: bytes) -> None:
        message = _messages.decode(body)
        if message.content is None:
            raise broken(self._message_in(body), f"target {self._target!r} sent a reply without content")
        self._name(message.model, None)
        self._take_reported(self._read_usage(message.usage, _message_usages))
        self.finish_reason = _STOPS.get(message.stop_reason or "", "stop")

    def _take_reported(self, usage: MessagesUsage | None) -> None:
        if usage is None:
            return
        self._stated = updated_usage(self._stated, usage)
        if usage.service_tier is not None or usage.speed is not None:
            self._take_tier(usage.speed, usage.service_tier)
        try:
            self._take(usage_from_messages(self._stated))
        except InvalidUsage:
            return  # contradictory: the reply stands, its usage stays unknown


def _without_output(usage: MessagesUsage | None) -> MessagesUsage | None:
    """Return a stream's initial usage without its output count, which is only an estimate."""
    return usage and msgspec.structs.replace(usage, output_tokens=None, output_tokens_details=None)


def _end_of(stop_reason: str, stop_sequence: str | None) -> Delta:
    return Delta(0, finish_reason=_STOPS.get(stop_reason, "stop"), stop=stop_sequence or "")


def _thought(thinking: str, signature: str) -> bytes:
    return _encode([{"type": "thinking", "thinking": thinking, "signature": signature}])


def _call(place: int, call_id: str | None, name: str | None, arguments: str) -> bytes:
    function = {"name": name or "", "arguments": arguments}
    return _encode([{"index": place, "id": call_id or "", "type": "function", "function": function}])


def _arguments(place: int, piece: str) -> bytes:
    return _encode([{"index": place, "function": {"arguments": piece}}])


# OpenAI's Responses API


_response_events: Final = msgspec.json.Decoder(ResponseEvent)
_responses: Final = msgspec.json.Decoder(ResponseBody)
_response_usages: Final = msgspec.json.Decoder(ResponsesUsage).decode
_CALLS: Final = frozenset(("function_call", "custom_tool_call"))
_THOUGHTS: Final = frozenset(("response.reasoning_text.delta", "response.reasoning_summary_text.delta"))
_PIECES: Final = frozenset(("response.function_call_arguments.delta", "response.custom_tool_call_input.delta"))
_ENDS: Final = frozenset(("response.completed", "response.incomplete"))


class ResponsesReader(NativeReader):
    """Reads a reply in OpenAI's Responses API, whole or as events."""

    def __init__(self, spec: TargetSpec, sink: Sink, request: AnyRequest, sent_credentials: tuple[str, ...]) -> None:
        super().__init__(spec, sink, request, sent_credentials)
        self._calls: dict[int, int] = {}  # number of the tool call by index of its item

    def _deltas_in(self, data: bytes) -> tuple[Delta, ...]:
        event = _response_events.decode(data)
        kind = event.type
        if isinstance(event.delta, str) and event.delta:
            return self._piece(kind, event.output_index, event.delta)
        if kind == "response.output_item.added" and event.item is not None and event.item.type in _CALLS:
            place = self._calls[event.output_index] = len(self._calls)
            return (Delta(1, tool_calls=_call(place, event.item.call_id, event.item.name, "")),)
        if kind == "response.created" and event.response is not None:
            self._name(event.response.model, None)
        elif kind in _ENDS:
            if event.response is not None:
                self._take_response(event.response)
            self.is_done = True
            return (Delta(0, finish_reason=_finish_of(event.response)),)
        elif kind in ("response.failed", "error"):
            raise self._broken_by(_failure_in(data))
        return _NONE

    def _piece(self, kind: str, place: int, text: str) -> tuple[Delta, ...]:
        if kind == "response.output_text.delta":
            return (Delta(least_tokens(text), text),)
        if kind in _THOUGHTS:
            tokens = least_tokens(text)
            return (Delta(tokens, reasoning=text, reasoning_tokens=tokens),)
        if kind in _PIECES:
            call = self._calls.get(place)
            return (Delta(1) if call is None else Delta(least_tokens(text), tool_calls=_arguments(call, text)),)
        if kind == "response.refusal.delta":
            return (Delta(least_tokens(text), refusal=text),)
        return _NONE

    def _read_whole(self, body: bytes) -> None:
        response = _responses.decode(body)
        if response.output is None or response.status == "failed":
            raise self._broken_by(body)
        self._name(response.model, None)
        self._take_response(response)
        self.finish_reason = _finish_of(response)

    def _take_response(self, response: ResponseBody) -> None:
        if response.service_tier is not None:
            self._take_tier(response.service_tier, None)
        usage = self._read_usage(response.usage, _response_usages)
        if usage is None:
            return
        try:
            self._take(usage_from_responses(usage))
        except InvalidUsage:
            return  # contradictory: the reply stands, its usage stays unknown


def _failure_in(data: bytes) -> bytes:
    """Return an event's error as the body of an error reply; it is at the top level or in the response."""
    found = msgspec.json.decode(data, type=FailedEvent)
    error = found.response.error if found.response is not None else found.error
    return _encode(NativeErrorBody(error or NativeError(code=found.code, message=found.message)))


def _finish_of(response: ResponseBody | None) -> str:
    if response is None:
        return "stop"
    if response.status == "incomplete" or response.incomplete_details is not None:
        reason = None if response.incomplete_details is None else response.incomplete_details.reason
        return "content_filter" if reason == "content_filter" else "length"
    calls = any([item.type in _CALLS for item in response.output or ()])
    return "tool_calls" if calls else "stop"
