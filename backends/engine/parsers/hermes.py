"""Parses tool calls in the format of Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from enum import Enum
from typing import Final

from backends.engine.parsers.json_object import JsonObjectEnd
from backends.engine.parsers.tag import begun_tag
from backends.engine.parsers.tool_call import ToolCall, ToolPiece, read_call

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"


class _State(Enum):
    BETWEEN = "between"  # at the start or after a call: white space may be skipped
    TEXT = "text"
    CALL = "call"
    CLOSING = "closing"


class HermesParser:
    """Parses one choice. A call is returned when its object is complete and valid; until then it could
    still be text.
    """

    def __init__(self) -> None:
        self._state = _State.BETWEEN
        self._held = ""
        self._opening = OPEN  # including skipped white space before it
        self._end = JsonObjectEnd()
        self._has_called = False

    def push(self, text: str) -> ToolPiece:
        """Parse further text and return the output that is certain."""
        self._held += text
        content: list[str] = []
        calls: list[ToolCall] = []
        while self._advance(content, calls):
            pass
        return ToolPiece("".join(content), calls)

    def finish(self) -> ToolPiece:
        """Return the remaining output. An incomplete call is text; a complete one needs no closing tag."""
        held, self._held = self._held, ""
        if self._state is _State.CALL:
            return ToolPiece(self._opening + held)
        is_frame = self._state is _State.CLOSING or (self._state is _State.BETWEEN and not held.strip())
        return ToolPiece() if self._has_called and is_frame else ToolPiece(held)

    def _advance(self, content: list[str], calls: list[ToolCall]) -> bool:
        """Advance by one state; False if more text is needed."""
        match self._state:
            case _State.BETWEEN:
                return self._between()
            case _State.TEXT:
                return self._text(content)
            case _State.CALL:
                return self._call(content, calls)
            case _State.CLOSING:
                return self._closing()

    def _between(self) -> bool:
        rest = self._held.lstrip()
        if OPEN.startswith(rest) and rest != OPEN:
            return False
        if rest.startswith(OPEN):
            self._begin(self._held[: -len(rest)] + OPEN, rest[len(OPEN) :])
        else:
            self._state = _State.TEXT
        return True

    def _text(self, content: list[str]) -> bool:
        before, found, after = self._held.partition(OPEN)
        if found:
            content.append(before)
            self._begin(OPEN, after)
            return True
        sure = len(before) - begun_tag(before, OPEN)
        content.append(before[:sure])
        self._held = before[sure:]
        return False

    def _begin(self, opening: str, rest: str) -> None:
        self._state, self._opening, self._held, self._end = _State.CALL, opening, rest, JsonObjectEnd()

    def _call(self, content: list[str], calls: list[ToolCall]) -> bool:
        self._end.follow(self._held)
        place = self._end.broken if self._end.end is None else self._end.end
        if place is None:
            return False
        stated, self._held = self._held[:place], self._held[place:]
        call = read_call(stated) if self._end.end is not None else None
        if call is None:
            content.append(self._opening + stated)
            self._state = _State.TEXT
        else:
            calls.append(call)
            self._has_called = True
            self._state = _State.CLOSING
        return True

    def _closing(self) -> bool:
        rest = self._held.lstrip()
        if CLOSE.startswith(rest) and rest != CLOSE:
            return False
        if rest.startswith(CLOSE):
            self._held = rest[len(CLOSE) :]
        self._state = _State.BETWEEN
        return True
