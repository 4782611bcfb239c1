"""Parses tool calls in Llama 3's format: the answer is `{"name": ..., "parameters": {...}}`, or follows
`<|python_tag|>`.

An answer may also be JSON that is not a call, so only an object that names an existing tool is a call.
"""

import re
from collections.abc import Collection
from enum import Enum
from typing import Final

from backends.engine.parsers.json_object import JsonObjectEnd
from backends.engine.parsers.tag import begun_tag
from backends.engine.parsers.tool_call import ToolCall, ToolPiece, read_call

TAG: Final = "<|python_tag|>"
_SEPARATORS: Final = (";", ",")
_FRAME: Final = " \t\r\n;,"  # separators between calls, ignored after the last one
_FIRST_KEYS: Final = ('"name"', '"type"', '"parameters"', '"arguments"')
_OPENING: Final = re.compile(r"\{\s*")
_NAMED: Final = re.compile(r'\{\s*"name"\s*:\s*"([^"\\]*)"')


class _State(Enum):
    BEGIN = "begin"  # at the start, after the tag or a separator: a call may follow
    TEXT = "text"
    CALL = "call"
    AFTER = "after"


class Llama3JsonParser:
    """Parses one choice. `names` are the request's tools."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._state = _State.BEGIN
        self._prefix = ""  # skipped characters before a possible call; text if it is not a call
        self._held = ""
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
        """Return the remaining output. An incomplete call is text."""
        text = self._prefix + self._held
        self._prefix = self._held = ""
        return ToolPiece() if self._has_called and not text.strip(_FRAME) else ToolPiece(text)

    def _advance(self, content: list[str], calls: list[ToolCall]) -> bool:
        """Advance by one state; False if more text is needed."""
        match self._state:
            case _State.BEGIN:
                return self._begin()
            case _State.TEXT:
                return self._text(content)
            case _State.CALL:
                return self._call(calls)
            case _State.AFTER:
                return self._after()

    def _begin(self) -> bool:
        rest = self._held.lstrip()
        if rest.startswith("{"):
            self._skip(len(self._held) - len(rest))
            self._state, self._end = _State.CALL, JsonObjectEnd()
        elif rest.startswith(TAG) and TAG not in self._prefix:
            self._skip(len(self._held) - len(rest) + len(TAG))
        elif TAG.startswith(rest) and rest != TAG:
            return False
        else:
            self._state = _State.TEXT
        return True

    def _skip(self, length: int) -> None:
        self._prefix += self._held[:length]
        self._held = self._held[length:]

    def _text(self, content: list[str]) -> bool:
        content.append(self._prefix)
        before, found, after = self._held.partition(TAG)
        if found:
            content.append(before)
            self._prefix, self._held, self._state = TAG, after, _State.BEGIN
            return True
        sure = len(before) - begun_tag(before, TAG)
        content.append(before[:sure])
        self._prefix, self._held = "", before[sure:]
        return False

    def _call(self, calls: list[ToolCall]) -> bool:
        self._end.follow(self._held)
        end = self._end.end
        if self._end.broken is not None or not self._may_be_call():
            self._state = _State.TEXT
            return True
        if end is None:
            return False
        call = read_call(self._held[:end])
        if call is None or call.name not in self._names:
            self._state = _State.TEXT
            return True
        calls.append(call)
        self._prefix, self._held = "", self._held[end:]
        self._has_called, self._state = True, _State.AFTER
        return True

    def _may_be_call(self) -> bool:
        opening = _OPENING.match(self._held)
        inside = opening.end() if opening else 0  # a buffered call may be long: it is not copied for each token
        if not any(key.startswith(self._held[inside : inside + len(key)]) for key in _FIRST_KEYS):
            return False
        named = _NAMED.match(self._held)
        return named is None or named[1] in self._names

    def _after(self) -> bool:
        rest = self._held.lstrip()
        if not rest:
            return False
        if rest[0] in _SEPARATORS:
            self._skip(len(self._held) - len(rest) + 1)
        self._state = _State.BEGIN
        return True
