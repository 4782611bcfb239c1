"""What a chat's answer is found to hold: tool calls where tools were offered, JSON where JSON was asked for.

Whether JSON fits its schema is not looked at: the gateway has no validator. A request that does neither has no facts
and pays nothing.
"""

from typing import Final, Literal

import msgspec

from contracts.api.chat import ChatRequest, GenerationRequest
from contracts.api.generation import Delta

Wanted = Literal["", "json", "object"]


class _Format(msgspec.Struct, frozen=True):
    type: str = ""


class _CallPiece(msgspec.Struct, frozen=True):
    index: int | None = None
    id: str | None = None


class _Part(msgspec.Struct, frozen=True):
    text: str | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | list[_Part] | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message | None = None
    text: str | None = None  # of a completion


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice] | None = None


_BROKEN: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
_WANTED: Final[dict[str, Wanted]] = {"json_schema": "json", "json_object": "object"}
_formats: Final = msgspec.json.Decoder(_Format)
_pieces: Final = msgspec.json.Decoder(list[_CallPiece])
_answers: Final = msgspec.json.Decoder(_Answer)
_any_json: Final = msgspec.json.Decoder(msgspec.Raw)  # reads all of it and builds nothing


class AnswerFacts:
    """Looks at one answer as it passes. What cannot be read stays unknown."""

    def __init__(self, wanted: Wanted, *, offers_tools: bool) -> None:
        self._wanted = wanted
        self._offers_tools = offers_tools
        self._calls: set[tuple[int, int, str]] = set()  # choice, place, id
        self._ids: dict[tuple[int, int], str] = {}
        self._whole_calls: int | None = None

    def begin(self) -> None:
        """Forget what a failed attempt produced."""
        self._calls, self._ids, self._whole_calls = set(), {}, None

    def take(self, delta: Delta) -> None:
        """Note the tool calls that a delta begins. A call is told by its place, and by its id where places repeat."""
        if not self._offers_tools:
            return
        try:
            pieces = _pieces.decode(delta.tool_calls)
        except _BROKEN:
            return
        for piece in pieces:
            place = (delta.index, piece.index or 0)
            known = self._ids.get(place)
            if known is None or (piece.id and piece.id != known):
                if known == "":
                    self._calls.discard((*place, ""))  # its id came late
                self._ids[place] = piece.id or ""
                self._calls.add((*place, piece.id or ""))

    def tool_calls(self, *, is_complete: bool) -> int | None:
        """Return the tool calls seen; `None` if no tools were offered, or none came before the answer broke off."""
        if not self._offers_tools:
            return None
        seen = len(self._calls) if self._whole_calls is None else self._whole_calls
        return seen if seen or is_complete else None

    def judge(self, texts: list[str | None]) -> bool | None:
        """Return whether the text of any choice is not the JSON asked for; `None` if there is nothing to judge.

        A choice without text (`None`), because it calls tools or refuses, is not judged.
        """
        judged = [text for text in texts if text is not None]
        if not self._wanted or not judged:
            return None
        return not all(map(self._is_sound, judged))

    def read_whole(self, body: bytes) -> bool | None:
        """Look at an upstream's whole reply: note its tool calls and judge its text."""
        try:
            choices = _answers.decode(body).choices or []
        except _BROKEN:
            return None
        self._whole_calls = sum(len(choice.message.tool_calls or ()) for choice in choices if choice.message)
        return self.judge(list(map(_spoken, choices)))

    def _is_sound(self, text: str) -> bool:
        try:
            _any_json.decode(text)
        except _BROKEN:
            return False
        return self._wanted != "object" or text.lstrip().startswith("{")


def facts_wanted(request: GenerationRequest) -> AnswerFacts | None:
    """Return what looks at a request's answer; `None` for one that offers no tools and asks for no JSON."""
    tools = request.tools if isinstance(request, ChatRequest) else None
    if not tools and not request.response_format:
        return None
    wanted: Wanted = ""
    if request.response_format:
        try:
            wanted = _WANTED.get(_formats.decode(request.response_format).type, "")
        except _BROKEN:
            pass  # "null", or what the target will refuse
    if not wanted and not tools:
        return None
    return AnswerFacts(wanted, offers_tools=bool(tools))


def _spoken(choice: _Choice) -> str | None:
    message = choice.message
    if message is None or message.tool_calls:
        return choice.text
    if isinstance(message.content, list):
        return "".join(part.text or "" for part in message.content)
    return message.content
