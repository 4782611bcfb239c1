"""Renders a chat's answer in the Gemini API's format: a `GenerateContentResponse`, or the events of its stream."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from contracts.api.generation import Delta
from contracts.errors import TollkeeperError, UpstreamBroken
from contracts.metering.usage import Usage
from gateway.apis.rendering import AnswerRenderer, WholeText

_REASONS: Final = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}
_UNPARSED: Final = "unparsed_arguments"
_encode: Final = msgspec.json.Encoder().encode


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Piece(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function = msgspec.field(default_factory=_Function)


_pieces: Final = msgspec.json.Decoder(list[_Piece])
_objects: Final = msgspec.json.Decoder(dict[str, Any])


class Candidate(WholeText):
    """One choice while it is assembled. Calls are whole parts, so a stream sends them at its end."""

    __slots__ = ("_calls", "_last", "_shows_thinking", "parts")

    def __init__(self, *, shows_thinking: bool) -> None:
        super().__init__()
        self._shows_thinking = shows_thinking
        self._calls: dict[int, _Piece] = {}
        self.parts: list[dict[str, Any]] = []

    def take(self, delta: Delta) -> None:
        """Add a delta. Raise UpstreamBroken on invalid tool calls."""
        super().take(delta)
        self.parts += self.pieces(delta)

    def pieces(self, delta: Delta) -> list[dict[str, Any]]:
        """Return the parts that a delta adds, and store its calls."""
        found: list[dict[str, Any]] = []
        if delta.reasoning and self._shows_thinking:
            found.append({"text": delta.reasoning, "thought": True})
        if delta.text or delta.refusal:
            found.append({"text": delta.text + delta.refusal})
        if delta.tool_calls:
            self._take_calls(delta.tool_calls)
        return found

    @property
    def spoken(self) -> str | None:
        """Return the text; `None` if functions are called."""
        return None if self._calls else super().spoken

    def calls(self) -> list[dict[str, Any]]:
        """Return the parts of the calls."""
        return [_call_part(call) for call in self._calls.values() if call.function.name]

    def rendered(self, index: int) -> dict[str, object]:
        """Return the candidate in the API's shape."""
        return _candidate(index, _joined(self.parts) + self.calls(), self.finish_reason or "stop")

    def _take_calls(self, pieces: bytes) -> None:
        try:
            found = _pieces.decode(pieces)
        except msgspec.MsgspecError as error:
            raise UpstreamBroken("the target sent tool calls that cannot be read") from error
        for piece in found:
            call = self._calls.setdefault(piece.index or 0, _Piece())
            call.id = call.id or piece.id
            call.function.name = (call.function.name or "") + (piece.function.name or "")
            call.function.arguments = (call.function.arguments or "") + (piece.function.arguments or "")


class GeminiRenderer(AnswerRenderer):
    """Renders one answer."""

    def __init__(self, response_id: str, model: str, *, shows_thinking: bool) -> None:
        self._response_id = response_id
        self._model = model
        self._shows_thinking = shows_thinking
        self._open: dict[int, Candidate] = {}
        self._ends: dict[int, str] = {}
        self._cause: TollkeeperError | None = None

    def opening(self, index: int) -> bytes:
        """Render nothing: each event is a complete response."""
        return b""

    def delta(self, delta: Delta) -> bytes:
        """Render a delta of a candidate; its calls and its end are in the last event."""
        candidate = self._open.setdefault(delta.index, self.new_choice())
        parts = candidate.pieces(delta)
        if delta.finish_reason is not None:
            self._ends[delta.index] = delta.finish_reason
        return self._event({"candidates": [_candidate(delta.index, parts, None)]}) if parts else b""

    def new_choice(self) -> Candidate:
        """Return an empty candidate to assemble."""
        return Candidate(shows_thinking=self._shows_thinking)

    def ending(self, index: int, why: TollkeeperError) -> bytes:
        """Record that the gateway cut a candidate; its end is in the last event."""
        self._ends[index] = why.ends_with
        self._cause = why
        return b""

    def closing(self, usage: Usage, *, wants_usage: bool) -> bytes:
        """Render the last event: each candidate's calls and end, and the usage."""
        indexes = sorted({*self._open, *self._ends}) or [0]
        candidates = []
        for index in indexes:
            calls = self._open[index].calls() if index in self._open else []
            candidates.append(_candidate(index, calls or [{"text": ""}], self._ends.get(index, "stop")))
        last: dict[str, object] = {"candidates": candidates, "usageMetadata": usage_metadata(usage)}
        if self._cause is not None:
            last["tollkeeper"] = {"ended_by": {"code": self._cause.error_code, "message": self._cause.message}}
        return self._event(last)

    def whole(self, choices: "Sequence[WholeText]", usage: Usage) -> bytes:
        """Render a complete answer."""
        candidates = [choice.rendered(index) for index, choice in enumerate(choices)]
        return _encode(self._response({"candidates": candidates, "usageMetadata": usage_metadata(usage)}))

    def _response(self, fields: dict[str, object]) -> dict[str, object]:
        return {**fields, "modelVersion": self._model, "responseId": self._response_id}

    def _event(self, fields: dict[str, object]) -> bytes:
        return b"data: %b\n\n" % _encode(self._response(fields))


def usage_metadata(usage: Usage) -> dict[str, object]:
    """Return usage in the API's format: thoughts are separate from candidates' tokens. Unknown counts are omitted."""
    thought, made = usage.output_reasoning, usage.output_tokens
    found: dict[str, object] = {"promptTokenCount": usage.input_tokens or 0}
    if made is not None:
        found["candidatesTokenCount"] = made - (thought or 0)
    if thought is not None:
        found["thoughtsTokenCount"] = thought
    if usage.cache_read_tokens is not None:
        found["cachedContentTokenCount"] = usage.cache_read_tokens
    return found | {"totalTokenCount": (usage.input_tokens or 0) + (made or 0)}


def _candidate(index: int, parts: list[dict[str, Any]], finish_reason: str | None) -> dict[str, object]:
    found: dict[str, object] = {"content": {"parts": parts, "role": "model"}, "index": index}
    return found if finish_reason is None else found | {"finishReason": _REASONS.get(finish_reason, "STOP")}


def _joined(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join adjacent texts."""
    found: list[dict[str, Any]] = []
    for part in parts:
        if found and found[-1].get("thought") == part.get("thought"):
            found[-1] = found[-1] | {"text": found[-1]["text"] + part["text"]}
        else:
            found.append(part)
    return found


def _call_part(call: _Piece) -> dict[str, Any]:
    text = call.function.arguments or ""
    try:
        args = _objects.decode(text) if text.strip() else {}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        args = {_UNPARSED: text}
    return {"functionCall": {"name": call.function.name, "args": args, **({"id": call.id} if call.id else {})}}
