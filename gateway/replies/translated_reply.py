"""The answer to a chat that was asked for in another API's words: whatever the target gives becomes deltas first."""

from typing import Any, Final

import msgspec

from contracts.api.chat import ChunkDelta, DeltaPart, TranslatedChat
from contracts.api.generation import Delta
from contracts.errors import UpstreamBroken
from contracts.metering.usage import Usage
from gateway.apis.rendering import AnswerRenderer
from gateway.replies.reply import GeneratedReply, ReplyFacts


class _Message(msgspec.Struct, frozen=True):
    content: str | list[DeltaPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, object]] | None = None
    thinking_blocks: msgspec.Raw = msgspec.Raw()


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    message: _Message = _Message()
    finish_reason: str | None = None
    stop_reason: Any = None  # vLLM's: the stop string that ended it, or a token's id


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice]


_answers: Final = msgspec.json.Decoder(_Answer)
_encode: Final = msgspec.json.Encoder().encode


class TranslatedReply(GeneratedReply):
    """The sink of one translated chat. No byte of the target's reaches the client as it came."""

    def __init__(self, facts: ReplyFacts, request: TranslatedChat, renderer: AnswerRenderer) -> None:
        super().__init__(facts, request, renderer)

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Render what an upstream's event carries."""
        for delta in deltas:
            self.delta(delta)

    def relay(self, delta: Delta) -> None:
        """Give nothing: each chunk is rendered."""
        return None

    def whole(self, body: bytes) -> None:
        """Take an upstream's whole answer apart. Raises UpstreamBroken where it is no chat's."""
        try:
            choices = _answers.decode(body).choices
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise UpstreamBroken("the target sent a reply that is not a chat's answer") from error
        for choice in choices:
            if not 0 <= choice.index < len(choices):  # choices are made up to the highest: it must not be any number
                raise UpstreamBroken("the target sent a reply whose choices are numbered wrongly")
            delta = _delta_of(choice)
            if self._facts is not None and delta.tool_calls:
                self._facts.take(delta)
            self._gather(delta)

    def prepare_end(self, usage: Usage) -> int:
        """Render what is still to be sent of a good answer and give its size in bytes."""
        if self._is_streamed:
            self._body = self._renderer.closing(usage, wants_usage=True)
            return len(self._body)
        return super().prepare_end(usage)


def _delta_of(choice: _Choice) -> Delta:
    message = choice.message
    said = ChunkDelta(message.content, message.reasoning_content, message.reasoning)
    calls = [{**call, "index": place} for place, call in enumerate(message.tool_calls or ())]
    return Delta(
        tokens=0,  # the upstream's usage counts them
        text=said.text or message.refusal or "",
        reasoning=said.thought,
        index=choice.index,
        finish_reason=choice.finish_reason,
        tool_calls=_encode(calls) if calls else b"",
        stop=choice.stop_reason if isinstance(choice.stop_reason, str) else "",
        thinking_blocks=bytes(message.thinking_blocks) if message.thinking_blocks else b"",
    )
