"""Follows a native stream of the Gemini API, and ends it if the gateway cuts it."""

from typing import Final

import msgspec

from contracts.api.answer_parts import CalledTool
from contracts.api.native_answers import GeminiAnswer
from contracts.errors import TollkeeperError
from contracts.metering.usage import Usage
from gateway.apis.gemini.rendering import GeminiRenderer
from gateway.replies.answer_facts import called_tool, mark_of
from gateway.replies.translated_reply import NativePassage

_answers: Final = msgspec.json.Decoder(GeminiAnswer)


class GeminiPassage(NativePassage):
    """One stream. Each event is a complete response, so nothing is open between two of them."""

    def take(self, data: bytes) -> None:
        """Accept an event."""

    def ending(self, why: TollkeeperError, usage: Usage) -> bytes:
        """Return the event that ends the stream."""
        renderer = GeminiRenderer("", "", shows_thinking=False)
        renderer.ending(0, why)
        return renderer.closing(usage, wants_usage=True)

    def calls_in(self, body: bytes) -> list[CalledTool] | None:
        """Return the tools that a complete answer calls; `None` if it cannot be parsed."""
        try:
            candidates = _answers.decode(body).candidates or ()
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        said = [one.content.parts for one in candidates if one.content is not None]
        calls = [part.function_call for parts in said for part in parts if part.function_call is not None]
        return [called_tool(call.name or "", mark_of(bytes(call.args))) for call in calls]
