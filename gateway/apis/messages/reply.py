"""The answer to one request of the Messages API, and how its native stream passes and is cut."""

from typing import Final

import msgspec

from backends.llm.http.sse import data_of
from contracts.api.answer_parts import BlockEvent, CalledTool, MessageCalls
from contracts.api.chat import TranslatedChat
from contracts.api.messages import Prompt
from contracts.errors import TollkeeperError
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.recording.records import CountMethod
from gateway.apis.messages.errors import own_headers
from gateway.apis.messages.rendering import MessageRenderer, cut_events
from gateway.replies.answer_facts import called_tool, mark_of
from gateway.replies.progress import Progress
from gateway.replies.reply import ReplyFacts
from gateway.replies.translated_reply import NativeStreamTracker, TranslatedReply
from gateway.wire.exchange import Headers

_events: Final = msgspec.json.Decoder(BlockEvent)
_messages: Final = msgspec.json.Decoder(MessageCalls)


class MessageStreamTracker(NativeStreamTracker):
    """Tracks the open content block of a native stream, so that the stream ends correctly if the gateway cuts it."""

    def __init__(self) -> None:
        self._open: int | None = None  # the block that has begun and not ended

    def take(self, data: bytes) -> None:
        """Note whether an event starts or stops a content block. `data` is one whole event."""
        if b"content_block_st" not in data[:80]:  # it begins or ends no block
            return
        event = _events.decode(data_of(data))
        self._open = event.index if event.type == "content_block_start" else None

    def ending(self, why: TollkeeperError, usage: Usage) -> bytes:
        """Return the events that end a cut stream: the stop of the open block, the reason and the usage."""
        return cut_events(self._open, why, usage)

    def calls_in(self, body: bytes) -> list[CalledTool] | None:
        """Return the tools that a complete message calls; `None` if it cannot be parsed."""
        try:
            content = _messages.decode(body).content
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        return [called_tool(block.name, mark_of(bytes(block.input))) for block in content if block.type == "tool_use"]


class MessagesReply(TranslatedReply):
    """Renders the answer to one request of the Messages API."""

    def __init__(self, facts: ReplyFacts, request: TranslatedChat) -> None:
        # A native answer that passes as it comes needs no renderer: it is made when it is asked for.
        super().__init__(facts, request, None, None if request.native is None else MessageStreamTracker())
        self._chat = request
        self._id_text = facts.id_text
        self._usage_at_start = UNKNOWN_USAGE
        self._tier = ""
        self._lines += b"request-id: %b\r\n" % facts.id_text.encode()

    def add_headers(self, headers: Headers) -> None:
        """Add response headers. Limit headers are added twice: under OpenAI's names and under Anthropic's."""
        super().add_headers(headers + own_headers(headers, self._clock.wall_ns()))

    def begin_attempt(self, progress: Progress, *, resumes: bool = False) -> None:
        """Count the next attempt's tokens; drop what a failed one produced and reported."""
        super().begin_attempt(progress, resumes=resumes)
        if not resumes:
            self._known_renderer = None
            self._usage_at_start, self._tier = UNKNOWN_USAGE, ""

    def _new_renderer(self) -> MessageRenderer:
        origin = self._chat.origin
        assert isinstance(origin, Prompt)
        message_id = f"msg_{self._id_text.replace('-', '')}"
        made = MessageRenderer(message_id, self._chat.model, shows_thinking=origin.shows_thinking)
        made.usage_at_start, made.service_tier = self._usage_at_start, self._tier
        return made

    def answered_at(self, tier: str) -> None:
        """Store the service tier, which is part of the message's usage."""
        super().answered_at(tier)
        self._tier = tier
        if isinstance(self._known_renderer, MessageRenderer):
            self._known_renderer.service_tier = tier

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Store the usage that the target reports. If it arrives before the text, the stream starts with it."""
        super().report(usage, count_method)
        self._usage_at_start = usage
        if isinstance(self._known_renderer, MessageRenderer):
            self._known_renderer.usage_at_start = usage
