"""Collects a streamed chat: text, tokens with log-probabilities, times and usage."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from analytics.comparison.pairs import Answer, TokenScore
from contracts.errors import InvalidUsage
from contracts.metering.openai_usage import usage_from_openai
from contracts.metering.usage import UNKNOWN_USAGE, OpenAIUsage, Usage
from gateway.routing.routes.refusal import begins_as_refusal

_decode: Final = msgspec.json.Decoder().decode
_DONE: Final = "[DONE]"
_FILTERED: Final = ("content_filter", "refusal")


class AnswerStream:
    """Collects the lines of one stream. `now` returns the time in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()
        self._first: float | None = None
        self._last = self._began
        self._pieces: list[str] = []
        self._tokens: list[TokenScore] = []
        self._finish_reason = ""
        self._refusal = ""
        self._error = ""
        self.usage: Usage = UNKNOWN_USAGE

    def take(self, line: str) -> None:
        """Add a line of the stream; lines that are not events are ignored."""
        if not line.startswith("data:") or line[5:].strip() == _DONE:
            return
        try:
            event = _decode(line[5:])
        except (msgspec.MsgspecError, UnicodeError):
            self._error = self._error or "broken_stream"
            return
        if not isinstance(event, dict):
            return
        if isinstance(event.get("error"), dict):
            self._error = str(event["error"].get("code") or "error")
        self._take_usage(event.get("usage"))
        for choice in event.get("choices") or ():
            self._take_choice(choice)

    def answer(self, cost_usd: float | None) -> Answer:
        """Return the collected answer."""
        text = "".join(self._pieces)
        tokens = self.usage.output_tokens
        first = self._first
        gaps = (tokens or 0) - 1
        return Answer(
            text=text,
            error=self._error or ("" if self._finish_reason else "incomplete"),
            finish_reason=self._finish_reason,
            tokens=self._tokens,
            output_tokens=tokens,
            ttft_seconds=None if first is None else first - self._began,
            duration_seconds=self._last - self._began,
            inter_token_seconds=None if first is None or gaps < 1 else (self._last - first) / gaps,
            cost_usd=cost_usd,
            is_refusal=bool(self._refusal) or self._finish_reason in _FILTERED or begins_as_refusal(text),
        )

    def _take_choice(self, choice: Any) -> None:
        delta = choice.get("delta") or {}
        content = delta.get("content")
        said = [each for each in (content, delta.get("reasoning_content")) if isinstance(each, str) and each]
        if said or delta.get("tool_calls"):
            self._last = self._now()
            if self._first is None:
                self._first = self._last
        if isinstance(content, str):
            self._pieces.append(content)
        self._refusal += delta.get("refusal") or ""
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            self._pieces.append(f"{function.get('name') or ''}{function.get('arguments') or ''}")
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        scores = choice.get("logprobs") or {}
        for token in scores.get("content") or ():
            self._tokens.append(_score(token))

    def _take_usage(self, stated: Any) -> None:
        if isinstance(stated, dict):
            try:
                self.usage = usage_from_openai(msgspec.convert(stated, OpenAIUsage))
            except (msgspec.ValidationError, InvalidUsage):
                self.usage = UNKNOWN_USAGE


def _score(token: Any) -> TokenScore:
    top = {_name(other): float(other["logprob"]) for other in token.get("top_logprobs") or ()}
    return TokenScore(_name(token), float(token["logprob"]), top)


def _name(token: Any) -> str:
    """Return an identifier of a token: its bytes, because partial characters are equal as text."""
    data = token.get("bytes")
    return bytes(data).hex() if data else str(token["token"])
