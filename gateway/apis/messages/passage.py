"""Follows a native stream of the Messages API, and ends it if the gateway cuts it."""

from typing import Final

import msgspec

from backends.llm.http.sse import data_of
from contracts.api.answer_parts import BlockEvent, CalledTool, MessageCalls
from contracts.errors import TollkeeperError
from contracts.metering.usage import Usage
from gateway.apis.messages.rendering import cut_events
from gateway.replies.answer_facts import called_tool, mark_of
from gateway.replies.translated_reply import NativePassage

_events: Final = msgspec.json.Decoder(BlockEvent)
_messages: Final = msgspec.json.Decoder(MessageCalls)


class MessagePassage(NativePassage):
    """One stream. Its events were read before, so they can be read."""

    def __init__(self) -> None:
        self._open: int | None = None  # the block that has begun and not ended

    def take(self, data: bytes) -> None:
        """Accept an event."""
        if b"content_block_st" not in data[:80]:  # it begins or ends no block
            return
        event = _events.decode(data_of(data))
        self._open = event.index if event.type == "content_block_start" else None

    def ending(self, why: TollkeeperError, usage: Usage) -> bytes:
        """Return the events that end the stream."""
        return cut_events(self._open, why, usage)

    def calls_in(self, body: bytes) -> list[CalledTool] | None:
        """Return the tools that a complete message calls; `None` if it cannot be parsed."""
        try:
            content = _messages.decode(body).content
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        return [called_tool(block.name, mark_of(bytes(block.input))) for block in content if block.type == "tool_use"]
