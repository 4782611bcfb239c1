"""Facts about a chat's answer: tool calls if tools were offered, valid JSON if JSON was requested.

Whether JSON conforms to its schema is not checked: the gateway has no validator. A request that offers no tools and
asks for no JSON costs nothing here.
"""

from typing import Final, Literal
from zlib import crc32

import msgspec

from contracts.api.answer_parts import (
    AskedFormat,
    CalledFunction,
    CalledTool,
    CallPiece,
    SpokenAnswer,
    SpokenChoice,
    WholeCall,
)
from contracts.api.chat import ChatRequest, GenerationRequest
from contracts.api.generation import Delta

Wanted = Literal["", "json", "object"]


class _Seen:
    """A tool call whose pieces are still arriving."""

    __slots__ = ("id", "name", "mark")

    def __init__(self, id: str) -> None:
        self.id = id
        self.name = ""
        self.mark = 0


_BROKEN: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
_WANTED: Final[dict[str, Wanted]] = {"json_schema": "json", "json_object": "object"}
_formats: Final = msgspec.json.Decoder(AskedFormat)
_pieces: Final = msgspec.json.Decoder(list[CallPiece])
_answers: Final = msgspec.json.Decoder(SpokenAnswer)
_whole_calls: Final = msgspec.json.Decoder(WholeCall)
_MOST_CALLED: Final = 64  # that are named on a record
_MAX_NAME: Final = 128
_any_json: Final = msgspec.json.Decoder(msgspec.Raw)  # reads all of it and builds nothing


class AnswerFacts:
    """Collects facts about one answer while it passes. What cannot be parsed stays unknown."""

    def __init__(self, wanted: Wanted, *, offers_tools: bool) -> None:
        self._wanted = wanted
        self._offers_tools = offers_tools
        self._calls: list[_Seen] = []
        self._open: dict[tuple[int, int], _Seen] = {}  # by choice and place
        self._whole_calls: int | None = None
        self._whole_called: list[CalledTool] = []

    def begin(self) -> None:
        """Discard what a failed attempt produced."""
        self._calls, self._open, self._whole_calls, self._whole_called = [], {}, None, []

    def take(self, delta: Delta) -> None:
        """Record the tool calls that a delta begins. A call is identified by its index, or by its id if an index
        repeats.
        """
        if not self._offers_tools:
            return
        try:
            pieces = _pieces.decode(delta.tool_calls)
        except _BROKEN:
            return
        for piece in pieces:
            place = (delta.index, piece.index or 0)
            seen = self._open.get(place)
            if seen is None or (piece.id and seen.id and piece.id != seen.id):
                seen = self._open[place] = _Seen(piece.id or "")
                self._calls.append(seen)
            elif piece.id:
                seen.id = piece.id  # it came late
            if piece.function is not None:
                seen.name = seen.name or piece.function.name or ""
                if piece.function.arguments:
                    seen.mark = crc32(piece.function.arguments.encode("utf-8", "surrogatepass"), seen.mark)

    def tool_calls(self, *, is_complete: bool) -> int | None:
        """Return the number of tool calls; `None` if no tools were offered, or if the answer broke off before the first
        call.
        """
        if not self._offers_tools:
            return None
        seen = len(self._calls) if self._whole_calls is None else self._whole_calls
        return seen if seen or is_complete else None

    def called(self) -> list[CalledTool]:
        """Return the first 64 tool calls."""
        if self._whole_calls is not None:
            return self._whole_called
        return [called_tool(seen.name, seen.mark) for seen in self._calls[:_MOST_CALLED]]

    def judge(self, texts: list[str | None]) -> bool | None:
        """Return whether the text of any choice is not the requested JSON; `None` if there is no text to judge.

        A choice without text (`None`), because it calls tools or refuses, is not judged.
        """
        judged = [text for text in texts if text is not None]
        if not self._wanted or not judged:
            return None
        return not all(map(self._is_sound, judged))

    def read_whole(self, body: bytes) -> bool | None:
        """Read a complete upstream reply: count its tool calls and judge its text."""
        try:
            choices = _answers.decode(body).choices or []
        except _BROKEN:
            return None
        calls = [call for choice in choices if choice.message for call in choice.message.tool_calls or ()]
        self._whole_calls = len(calls)
        self._whole_called = [_called_in(call) for call in calls[:_MOST_CALLED]]
        return self.judge(list(map(_spoken, choices)))

    def _is_sound(self, text: str) -> bool:
        try:
            _any_json.decode(text)
        except _BROKEN:
            return False
        return self._wanted != "object" or text.lstrip().startswith("{")


def called_tool(name: str, arguments_mark: int) -> CalledTool:
    """Return a call of a tool whose arguments have this checksum."""
    return CalledTool(name[:_MAX_NAME], crc32(name.encode("utf-8", "surrogatepass"), arguments_mark))


def mark_of(arguments: bytes) -> int:
    """Return the checksum of a call's arguments, as they are written."""
    return crc32(arguments)


def _called_in(call: msgspec.Raw) -> CalledTool:
    try:
        function = _whole_calls.decode(call).function or CalledFunction()
    except _BROKEN:
        function = CalledFunction()
    return called_tool(function.name or "", mark_of((function.arguments or "").encode("utf-8", "surrogatepass")))


def is_looked_into(request: GenerationRequest) -> bool:
    """Return whether a request offers tools or asks for JSON, so that its answer has facts."""
    tools = request.tools if isinstance(request, ChatRequest) else None
    return bool(tools or request.response_format) and facts_wanted(request) is not None


def facts_wanted(request: GenerationRequest) -> AnswerFacts | None:
    """Return the collector of facts for a request's answer; `None` if it offers no tools and asks for no JSON."""
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


def _spoken(choice: SpokenChoice) -> str | None:
    message = choice.message
    if message is None or message.tool_calls:
        return choice.text
    if isinstance(message.content, list):
        return "".join(part.text or "" for part in message.content)
    return message.content
