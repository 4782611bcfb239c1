"""Follow a native stream of the Gemini API, and end it where the gateway cuts it."""

from typing import Final

import msgspec

from contracts.errors import TollkeeperError
from contracts.metering.usage import Usage
from gateway.apis.gemini.rendering import GeminiRenderer
from gateway.replies.answer_facts import CalledTool, called_tool, mark_of


class _Call(msgspec.Struct, frozen=True):
    name: str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    function_call: _Call | None = None


class _Content(msgspec.Struct, frozen=True):
    parts: list[_Part] = []


class _Candidate(msgspec.Struct, frozen=True):
    content: _Content = _Content()


class _Answer(msgspec.Struct, frozen=True):
    candidates: list[_Candidate] = []


_answers: Final = msgspec.json.Decoder(_Answer)


class GeminiPassage:
    """One stream. Each event is a whole response, so that nothing is open between two of them."""

    def take(self, data: bytes) -> None:
        """Accept an event."""

    def ending(self, why: TollkeeperError, usage: Usage) -> bytes:
        """Return the event that ends the stream."""
        renderer = GeminiRenderer("", "", shows_thinking=False)
        renderer.ending(0, why)
        return renderer.closing(usage, wants_usage=True)

    def calls_in(self, body: bytes) -> list[CalledTool] | None:
        """Return the tools that a whole answer calls; `None` if it cannot be read."""
        try:
            candidates = _answers.decode(body).candidates
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        calls = [part.function_call for one in candidates for part in one.content.parts if part.function_call]
        return [called_tool(call.name, mark_of(bytes(call.args))) for call in calls]
