"""The answer to a request of another API that was translated to a chat. The target's output is parsed into deltas
first.
"""

from abc import ABC, abstractmethod
from typing import Final
from urllib.parse import quote

import msgspec

from backends.processes.native import mypyc_attr
from contracts.api.answer_parts import CalledTool, Findings, RawChoices, WholeAnswer, WholeChoice
from contracts.api.chat import ChunkDelta, TranslatedChat
from contracts.api.generation import Delta
from contracts.errors import TollkeeperError, UpstreamBroken
from contracts.guardrails.finding import Verdict
from contracts.metering.usage import Usage
from gateway.apis.rendering import AnswerRenderer
from gateway.replies.progress import Progress
from gateway.replies.reply import GeneratedReply, ReplyFacts


@mypyc_attr(allow_interpreted_subclasses=True)
class NativeStreamTracker(ABC):
    """Follows the events of a stream in the client's own API while they are forwarded."""

    @abstractmethod
    def take(self, data: bytes) -> None:
        """Read an event that is sent to the client."""

    @abstractmethod
    def ending(self, why: TollkeeperError, usage: Usage) -> bytes:
        """Return the events that end a stream which the gateway cuts."""

    @abstractmethod
    def calls_in(self, body: bytes) -> list[CalledTool] | None:
        """Return the tool calls of a complete answer; `None` if it cannot be parsed."""


_answers: Final = msgspec.json.Decoder(WholeAnswer)
_held: Final = msgspec.json.Decoder(RawChoices)
_IN_CHOICES: Final = b'{"choices":[%b]}'  # as guardrails know whole answers
_encode: Final = msgspec.json.Encoder().encode
_MAX_DROPPED: Final = 1024  # bytes of the header that names what was dropped
_MAX_NAME: Final = 100  # characters of one name in it


@mypyc_attr(allow_interpreted_subclasses=True)
class TranslatedReply(GeneratedReply):
    """Receives the answer to one translated chat.

    If the target speaks the client's API itself (`native`), its bytes are forwarded unchanged, except for changes by
    guardrails. `passage` follows them, so that the gateway can end a stream that it cuts.
    """

    def __init__(
        self,
        facts: ReplyFacts,
        request: TranslatedChat,
        renderer: AnswerRenderer | None,  # as of a GeneratedReply
        passage: NativeStreamTracker | None = None,
    ) -> None:
        super().__init__(facts, request, renderer)
        self._passage = passage
        self._dropped = request.dropped
        self._is_native = False
        self._has_passed = False  # something of a native stream reached the client as it came
        self._held_end: bytes | None = None  # of a native stream: from its finish reason on
        self._cut_by: TollkeeperError | None = None

    def begin_attempt(self, progress: Progress, *, resumes: bool = False) -> None:
        """Count the next attempt's tokens; discard what a failed attempt produced."""
        super().begin_attempt(progress, resumes=resumes)
        if not resumes:
            self._is_native, self._held_end = False, None

    def native(self) -> None:
        """Record that the target answers in the client's API. Raise UpstreamBroken if it was not called in that API."""
        if self._passage is None:
            super().native()
        self._is_native = True

    def served(self, model: str, version: str) -> None:
        """Name in the response headers the model and target that answer, and the fields that the target was not
        sent.
        """
        super().served(model, version)
        if self._dropped and not self._is_native:
            self._served += ((b"x-tollkeeper-dropped", _listed(self._dropped)),)

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Forward an event of the client's API; render the content of another upstream's event."""
        if self._is_native:
            super().event(data, deltas, is_usage_only=False)
            return
        for delta in deltas:
            self.delta(delta)

    def end_early(self, why: TollkeeperError) -> None:
        """End the answer here as a successful one. A stream in the client's API ends with that API's own events."""
        if self._passes and self._has_passed:
            self.has_ended, self._cut_by = True, why
        else:
            super().end_early(why)

    def passes_inspection(self) -> bool:
        """Return whether guardrails surely find nothing in this answer, which is complete and was not changed."""
        through, body = self._filter, self._body
        if not self._is_native or through is None or body is None:
            return super().passes_inspection()
        return through.passes_whole(_IN_CHOICES % body)

    async def inspect(self) -> Verdict | None:
        """Let guardrails inspect the end of an answer. Their changes to a complete answer in the client's API are made
        in its JSON.
        """
        through, body = self._filter, self._body
        if not self._is_native or through is None or body is None or self.has_ended:
            return await super().inspect()
        held = _IN_CHOICES % body
        judged = await through.judge_body(held)
        if through.blocked is not None:
            self._body = None  # it is rendered again, with nothing in it
        elif judged != held:
            self._body = bytes(_held.decode(judged).choices[0])
        return through.blocked

    def findings(self, *, is_complete: bool) -> Findings:
        """Return the tools that the answer calls, and whether its text is not the requested JSON."""
        facts = self._facts
        if not self._is_native or self._is_streamed or facts is None or self._body is None or self._passage is None:
            return super().findings(is_complete=is_complete)
        called = self._passage.calls_in(self._body) if is_complete else None
        return Findings(None if called is None else len(called), None, called or [])

    @property
    def _passes(self) -> bool:
        """Return whether a stream's events are forwarded unchanged, because no guardrail may change them."""
        return self._is_native and self._is_streamed and (self._filter is None or not self._filter.acts)

    def _send_covered(self, data: bytes, delta: Delta) -> None:
        """Send an event that the allowance covers. An event in the client's API that is covered only in part is not
        sent.
        """
        if data or not self._passes:
            super()._send_covered(data, delta)

    def _note_end(self, delta: Delta) -> None:
        super()._note_end(delta)
        if delta.finish_reason is not None and self._passes:
            self._held_end = b""

    def _send_event(self, data: bytes) -> None:
        """Send an event; hold the end of a stream back until the record is on disk."""
        if self.has_ended or self._passage is None or not self._passes:
            super()._send_event(data)
        elif self._held_end is not None:
            self._held_end += data
        else:
            self._passage.take(data)
            self._has_passed = True
            super()._send_event(data)

    def relay(self, delta: Delta) -> None:
        """Return `None`: each chunk has to be rendered."""
        return None

    def whole(self, body: bytes) -> None:
        """Parse an upstream's complete answer. Raise UpstreamBroken if it is not a chat completion."""
        if self._is_native:
            super().whole(body)
            return
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
        """Render the rest of a successful answer; return its size in bytes."""
        if self._passes and self._passage is not None and (self._has_passed or self._held_end is not None):
            why = self._cut_by
            self._body = self._held_end or b"" if why is None else self._passage.ending(why, usage)
            return len(self._body)
        if self._is_streamed:
            self._body = self._renderer.closing(usage, wants_usage=True)
            return len(self._body)
        return super().prepare_end(usage)


def _delta_of(choice: WholeChoice) -> Delta:
    message = choice.message
    said = ChunkDelta(message.content, message.reasoning_content, message.reasoning)
    calls = [{**call, "index": place} for place, call in enumerate(message.tool_calls or ())]
    return Delta(
        tokens=0,  # the upstream's usage contains their count
        text=said.text or message.refusal or "",
        reasoning=said.thought,
        index=choice.index,
        finish_reason=choice.finish_reason,
        tool_calls=_encode(calls) if calls else b"",
        stop=choice.stop_reason if isinstance(choice.stop_reason, str) else "",
        thinking_blocks=bytes(message.thinking_blocks) if message.thinking_blocks else b"",
    )


def _listed(names: tuple[str, ...]) -> bytes:
    """Return names of a client's fields for a header: percent-encoded, so that they cannot inject headers."""
    listed = b""
    for name in names:
        safe = quote(name[:_MAX_NAME], safe="[]", errors="replace").encode("ascii") or b"%22%22"
        if len(listed) + len(safe) >= _MAX_DROPPED:
            return listed + b",..."
        listed += b"," * bool(listed) + safe
    return listed
