"""Parts of an OpenAI-compatible chat answer beyond accounting: log probabilities, complete answers."""

from typing import Any, Final

import msgspec

from backends.llm.http.sse import data_of
from contracts.api.generation import Delta
from contracts.engine.wire import TokenLogprob
from contracts.errors import UpstreamBroken

_BROKEN: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)


class _Logprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    top_logprobs: "list[_Logprob] | None" = None


class _Logprobs(msgspec.Struct, frozen=True):
    content: list[_Logprob] | None = None


class _Part(msgspec.Struct, frozen=True):
    text: str | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    message: _Message = _Message()
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice]


_answers: Final = msgspec.json.Decoder(_Answer)
_encode: Final = msgspec.json.Encoder().encode


def with_logprobs(event: bytes, deltas: tuple[Delta, ...]) -> list[Delta]:
    """Return a stream's deltas with the log probabilities in their event."""
    try:
        found = {choice.index: _logprobs(choice.logprobs) for choice in _answers.decode(data_of(event)).choices}
    except _BROKEN:
        return list(deltas)  # a server's own way to put them: the text is worth more
    return [msgspec.structs.replace(delta, logprobs=found.get(delta.index, [])) for delta in deltas]


def deltas_of(body: bytes) -> list[Delta]:
    """Convert a complete answer to deltas. Raises UpstreamBroken if it is not a chat answer."""
    try:
        choices = _answers.decode(body).choices
    except _BROKEN as error:
        raise UpstreamBroken("the target sent a reply that is not a chat's answer") from error
    return [_delta_of(choice) for choice in choices]


def _delta_of(choice: _Choice) -> Delta:
    message = choice.message
    content = message.content
    calls = [{**call, "index": place} for place, call in enumerate(message.tool_calls or ())]
    return Delta(
        tokens=0,  # the upstream's usage contains their count
        text=content if isinstance(content, str) else "".join(part.text or "" for part in content or ()),
        reasoning=message.reasoning_content or message.reasoning or "",
        index=choice.index,
        finish_reason=choice.finish_reason,
        tool_calls=_encode(calls) if calls else b"",
        logprobs=_logprobs(choice.logprobs),
        refusal=message.refusal or "",
    )


def _logprobs(given: _Logprobs | None) -> list[TokenLogprob]:
    tokens = (given.content if given is not None else None) or ()
    return [
        TokenLogprob(
            token_id=-1,  # servers do not tell
            text=token.token,
            logprob=token.logprob,
            top=[(-1, other.token, other.logprob) for other in token.top_logprobs or ()],
        )
        for token in tokens
    ]
