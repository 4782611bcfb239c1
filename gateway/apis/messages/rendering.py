"""Renders a chat's answer in Anthropic's Messages API: a message, or the events of its stream."""

from collections.abc import Sequence
from typing import Final

import msgspec

from contracts.api.generation import Delta
from contracts.errors import TollkeeperError
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from gateway.apis.messages.blocks import Block, BlockFinder, Kind
from gateway.apis.rendering import AnswerRenderer, WholeText

_encode: Final = msgspec.json.Encoder().encode

_STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_DELTA_HEADS: Final[dict[Kind, bytes]] = {
    "thinking": b'"delta":{"type":"thinking_delta","thinking":',
    "text": b'"delta":{"type":"text_delta","text":',
    "redacted_thinking": b"",
    "tool_use": b'"delta":{"type":"input_json_delta","partial_json":',
}
_STARTS: Final[dict[Kind, dict[str, object]]] = {
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
    "redacted_thinking": {"type": "redacted_thinking"},
    "text": {"type": "text", "text": ""},
    "tool_use": {"type": "tool_use", "input": {}},
}
_REFUSAL: Final = {"type": "refusal", "category": None, "explanation": None}

MessageUsage = dict[str, object]


def input_usage(usage: Usage) -> MessageUsage:
    """Return the counts of input tokens. Unknown ones are omitted, except `input_tokens`, which the API requires: it is
    then 0.

    `input_tokens` excludes input that was read from a cache or written to one.
    """
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    found: MessageUsage = {"input_tokens": (usage.input_tokens or 0) - (read or 0) - (written or 0)}
    if written is not None:
        found["cache_creation_input_tokens"] = written
        found["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage.cache_write_5m or 0,
            "ephemeral_1h_input_tokens": usage.cache_write_1h or 0,
        }
    if read is not None:
        found["cache_read_input_tokens"] = read
    return found


def message_usage(usage: Usage) -> MessageUsage:
    """Return all token counts. Example: output_text 5 and output_reasoning 7 -> output_tokens 12, thinking_tokens 7."""
    found = input_usage(usage) | {"output_tokens": usage.output_tokens or 0}
    if usage.output_reasoning is not None:
        found["output_tokens_details"] = {"thinking_tokens": usage.output_reasoning}
    return found


def _tier(name: str) -> dict[str, object]:
    """Return the service tier in Anthropic's fields; its fast tier is a `speed`."""
    if name == "fast":
        return {"service_tier": "standard", "speed": "fast"}
    return {"service_tier": name or "standard"}


class MessageRenderer(AnswerRenderer):
    """Renders one message. A message has one choice: further choices of a target are dropped."""

    def __init__(self, message_id: str, model: str, *, shows_thinking: bool) -> None:
        self._message_id = message_id
        self._model = model
        self._shows_thinking = shows_thinking
        self._finder = self._new_finder()
        self._has_opened = False
        self._open: Block | None = None
        self._begun = 0  # blocks
        self._heads: dict[int, bytes] = {}  # by block: all of an event before its piece
        self._end: dict[str, object] = {"stop_reason": "end_turn", "stop_sequence": None}
        self._cause: TollkeeperError | None = None
        self.usage_at_start = UNKNOWN_USAGE  # what the target reports before its answer
        self.service_tier = ""  # that the target says it answers at

    def opening(self, index: int) -> bytes:
        """Render the event that opens the message's stream."""
        if self._has_opened:
            return b""
        self._has_opened = True
        usage = input_usage(self.usage_at_start) | {"output_tokens": 0}
        return _event("message_start", {"type": "message_start", "message": self._message([], _NO_END, usage)})

    def delta(self, delta: Delta) -> bytes:
        """Render a delta of the message; nothing if it has no content yet."""
        if delta.index:
            return b""
        rendered = b""
        for block, piece in self._finder.pieces(delta):
            if block.index >= self._begun:
                rendered += self._close() + self._begin(block)
            if piece:
                rendered += self._heads[block.index] + _encode(piece) + b"}}\n\n"
            if block.signature and block.kind == "thinking":
                rendered += _signed(block)
        if delta.finish_reason:
            rendered += self._close()
            self._end = _end(delta.finish_reason, delta.stop, has_calls=self._finder.has_calls)
        return rendered

    def new_choice(self) -> "WholeMessage":
        """Return an empty message to assemble."""
        return WholeMessage(self._new_finder())

    def ending(self, index: int, why: TollkeeperError) -> bytes:
        """End a message that the gateway cut; the event that reports it also contains its usage."""
        if index:
            return b""
        self._cause = why
        self._end = _end(why.ends_with, "", has_calls=False)
        return self.opening(0) + self._close()

    def closing(self, usage: Usage, *, wants_usage: bool) -> bytes:
        """Render the events that end the stream of a complete message: why it ended, and its usage."""
        delta: dict[str, object] = {"type": "message_delta", "delta": self._end, "usage": message_usage(usage)}
        if self._cause is not None:
            delta["tollkeeper"] = {"ended_by": {"code": self._cause.error_code, "message": self._cause.message}}
        last = _event("message_delta", delta) + _event("message_stop", {"type": "message_stop"})
        return self.opening(0) + self._close() + last

    def whole(self, choices: "Sequence[WholeText]", usage: Usage) -> bytes:
        """Render a complete message."""
        first = choices[0].rendered(0) if choices else {"content": [], "end": _end("", "", has_calls=False)}
        content, end = first["content"], first["end"]
        assert isinstance(content, list) and isinstance(end, dict)
        return _encode(self._message(content, end, message_usage(usage)))

    def _new_finder(self) -> BlockFinder:
        return BlockFinder(self._message_id.replace("msg_", "toolu_"), shows_thinking=self._shows_thinking)

    def _message(self, content: list[object], end: dict[str, object], usage: dict[str, object]) -> dict[str, object]:
        return {
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            **end,
            "usage": usage | _tier(self.service_tier),
        }

    def _begin(self, block: Block) -> bytes:
        self._open, self._begun = block, block.index + 1
        self._heads[block.index] = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,' % block.index
            + _DELTA_HEADS[block.kind]
        )
        start = _STARTS[block.kind]
        if block.kind == "tool_use":
            start = {**start, "id": block.call_id, "name": block.name}
        elif block.kind == "redacted_thinking":
            start = {**start, "data": block.signature}
        return _event(
            "content_block_start", {"type": "content_block_start", "index": block.index, "content_block": start}
        )

    def _close(self) -> bytes:
        block, self._open = self._open, None
        if block is None:
            return b""
        return _event("content_block_stop", {"type": "content_block_stop", "index": block.index})


class WholeMessage(WholeText):
    """A message while it is assembled."""

    __slots__ = ("_blocks", "_finder", "_stop")

    def __init__(self, finder: BlockFinder) -> None:
        super().__init__()
        self._finder = finder
        self._blocks: list[Block] = []
        self._stop = ""

    def take(self, delta: Delta) -> None:
        """Add a delta. Raises UpstreamBroken on invalid tool calls."""
        super().take(delta)
        self._stop = delta.stop or self._stop
        for block, piece in self._finder.pieces(delta):
            if block.index >= len(self._blocks):
                self._blocks.append(block)
            block.pieces.append(piece)

    @property
    def spoken(self) -> str | None:
        """Return the text; `None` if the message calls tools."""
        return None if self._finder.has_calls else super().spoken

    def rendered(self, index: int) -> dict[str, object]:
        """Return the blocks, and how they end."""
        return {
            "content": [block.rendered() for block in self._blocks],
            "end": _end(self.finish_reason or "", self._stop, has_calls=self._finder.has_calls),
        }


_NO_END: Final[dict[str, object]] = {"stop_reason": None, "stop_sequence": None}


def _end(finish_reason: str, stop: str, *, has_calls: bool) -> dict[str, object]:
    """Return how a message ended. Some servers call a forced call's end "stop", which it is not."""
    reason = _STOP_REASONS.get(finish_reason, "end_turn")
    if reason == "end_turn" and (has_calls or stop):
        reason = "tool_use" if has_calls else "stop_sequence"
    end: dict[str, object] = {"stop_reason": reason, "stop_sequence": stop if reason == "stop_sequence" else None}
    if reason == "refusal":
        end["stop_details"] = _REFUSAL
    return end


def cut_events(open_block: int | None, why: TollkeeperError, usage: Usage) -> bytes:
    """Render the events that end a message that another server started and the gateway cut."""
    stop = _event("content_block_stop", {"type": "content_block_stop", "index": open_block})
    delta: dict[str, object] = {
        "type": "message_delta",
        "delta": _end(why.ends_with, "", has_calls=False),
        "usage": message_usage(usage),
        "tollkeeper": {"ended_by": {"code": why.error_code, "message": why.message}},
    }
    last = _event("message_delta", delta) + _event("message_stop", {"type": "message_stop"})
    return last if open_block is None else stop + last


def _signed(block: Block) -> bytes:
    delta = {"type": "signature_delta", "signature": block.signature}
    return _event("content_block_delta", {"type": "content_block_delta", "index": block.index, "delta": delta})


def _event(name: str, data: dict[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(data))
