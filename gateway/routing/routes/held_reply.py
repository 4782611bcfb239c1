"""An answer that is held back until it is judged: the client gets it complete, or not at all."""

from collections.abc import Callable
from typing import Final

import msgspec

from contracts.api.chat import ChatRequest, DeltaPart
from contracts.api.generation import Delta
from contracts.engine.wire import TokenLogprob
from contracts.errors import UpstreamBroken
from gateway.replies.allowance import WAIT, part_of
from gateway.replies.progress import Progress
from gateway.replies.reply import GeneratedReply, Reply, ReplyFacts
from gateway.routing.routes.judge import HeldText

_fields_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_choices_decoder: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_encoder: Final = msgspec.json.Encoder()
_BROKEN: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)


class _Alternative(msgspec.Struct, frozen=True):
    token: str = ""
    logprob: float | None = None


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    logprob: float | None = None  # some servers do not report it for all tokens
    top_logprobs: list[_Alternative] | None = None


class _Logprobs(msgspec.Struct, frozen=True):
    content: list[_Token] | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | list[DeltaPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, object]] | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message = _Message()
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice]


_answers: Final = msgspec.json.Decoder(_Answer)


class HeldReply(Reply):
    """The sink of one complete chat answer that is not sent yet. It is requested as one choice, and not as a stream."""

    def __init__(self, facts: ReplyFacts) -> None:
        super().__init__(facts)
        self._deltas: list[Delta] = []
        self._by: tuple[str, str] = ("", "")
        self._lines_before = len(self._lines)

    @property
    def has_begun(self) -> bool:
        """Return False: the client has received nothing."""
        return False

    @property
    def own_lines(self) -> bytes:
        """Return the lines of the headers for its model: rate limits, and changed settings."""
        return self._lines[self._lines_before :]

    def begin_attempt(self, progress: Progress, *, resumes: bool = False) -> None:
        """Count the next attempt's tokens into `progress`; drop what a failed one produced, unless it is resumed."""
        super().begin_attempt(progress, resumes=resumes)
        if not resumes:
            self._deltas = []

    def delta(self, delta: Delta) -> None:
        """Store a delta."""
        self._progress.take(delta, self._clock.monotonic_ns())
        if self._on_tokens is not None and delta.tokens:
            self._on_tokens(delta.tokens)
        allowance = self._allowance
        if allowance is not None and self._progress.tokens >= allowance.next_at:
            allowance.defer(delta.tokens, delta.reasoning_tokens)
            passing = allowance.offer(delta.tokens, delta.reasoning_tokens, is_complete=delta.finish_reason is not None)
            if passing not in (delta.tokens, WAIT):  # output waiting for shared counters is stored: no client has it
                part = part_of(delta, passing)
                if part is not None:
                    self._deltas.append(part)
                return
            if not delta.tokens and allowance.withheld:
                return
        self._deltas.append(delta)

    def served(self, model: str, version: str) -> None:
        """Store which model answers."""
        self._by = (model, version)

    def attach_flow(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Do nothing: no client reads yet, so none can slow the target down."""

    async def drained(self) -> None:
        """Return at once: no client reads yet."""

    def text(self) -> HeldText:
        """Return the answer for judging. Raises UpstreamBroken if it is not a chat answer."""
        deltas = self._as_deltas()
        return HeldText(
            text="".join(delta.text for delta in deltas),
            refusal="".join(delta.refusal for delta in deltas),
            finish_reason=next((delta.finish_reason for delta in deltas if delta.finish_reason), ""),
            calls_tools=any(delta.tool_calls for delta in deltas),
            logprobs=[token.logprob for delta in deltas for token in delta.logprobs],
        )

    def deliver(self, reply: Reply, request: ChatRequest) -> None:
        """Send the answer to the client's reply, in the form that its request asks for."""
        reply.begin_attempt(Progress())  # keeps the measurements: these tokens pass a second time
        reply.served(*self._by)
        wants_logprobs = request.logprobs is True
        if self._body is not None and not request.is_streamed:
            reply.whole(self._body if wants_logprobs else _without_logprobs(self._body))
            return
        for delta in self._as_deltas():
            assert isinstance(reply, GeneratedReply)
            reply.delta(delta if wants_logprobs else msgspec.structs.replace(delta, logprobs=[]))

    def _as_deltas(self) -> list[Delta]:
        return self._deltas if self._body is None else [_delta_of(self._body)]


def _delta_of(body: bytes) -> Delta:
    try:
        choices = _answers.decode(body).choices
    except _BROKEN as error:
        raise UpstreamBroken("the target sent a reply that is not a chat's answer") from error
    if not choices:
        raise UpstreamBroken("the target sent a reply without a choice")
    choice = choices[0]
    message = choice.message
    text, thought = _text_of(message)
    calls = [{**call, "index": place} for place, call in enumerate(message.tool_calls or ())]
    tokens = choice.logprobs.content or [] if choice.logprobs is not None else []
    return Delta(
        tokens=0,  # the upstream's usage contains their count
        text=text,
        reasoning=thought,
        refusal=message.refusal or "",
        finish_reason=choice.finish_reason or "stop",
        tool_calls=_encoder.encode(calls) if calls else b"",
        logprobs=[_token_logprob(token, token.logprob) for token in tokens if token.logprob is not None],
    )


def _text_of(message: _Message) -> tuple[str, str]:
    """Return an answer's text and its reasoning."""
    content = message.content
    if isinstance(content, list):
        return "".join(part.text or "" for part in content), "".join(part.thought for part in content)
    return content or "", message.reasoning_content or message.reasoning or ""


def _token_logprob(token: _Token, logprob: float) -> TokenLogprob:
    others = token.top_logprobs or ()
    top = [(0, other.token, other.logprob) for other in others if other.logprob is not None]  # without token ids
    return TokenLogprob(0, token.token, logprob, top)


def _without_logprobs(body: bytes) -> bytes:
    """Remove the log-probabilities that only the judge asked for."""
    fields = _fields_decoder.decode(body)
    choices = _choices_decoder.decode(fields["choices"])
    for choice in choices:
        if "logprobs" in choice:
            choice["logprobs"] = msgspec.Raw(b"null")
    fields["choices"] = msgspec.Raw(_encoder.encode(choices))
    return _encoder.encode(fields)
