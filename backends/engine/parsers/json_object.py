"""Finds the end of a JSON object in growing text, or the point where it becomes invalid."""

from typing import Final

_CLOSES: Final = {"{": "}", "[": "]"}
# Characters outside strings; other faults are found when the whole object is parsed.
_PLAIN: Final = frozenset(" \t\r\n,:+-.0123456789abcdefghijklmnopqrstuvwxyzE")
_FIRST_PRINTABLE: Final = " "


class JsonObjectEnd:
    """Scans one object from its first character on. `end` and `broken` are positions in the text, once known."""

    __slots__ = ("_closers", "_is_escaped", "_is_in_string", "_seen", "broken", "end")

    def __init__(self) -> None:
        self._closers: list[str] = []
        self._is_in_string = False
        self._is_escaped = False
        self._seen = 0
        self.end: int | None = None
        self.broken: int | None = None  # position of the first invalid character

    def follow(self, text: str) -> None:
        """Scan the new part of `text`, which starts with the object; leading white space is skipped."""
        place = self._seen
        while place < len(text) and self.end is None and self.broken is None:
            self._take(text[place], place)
            place += 1
        self._seen = place

    def _take(self, character: str, place: int) -> None:
        if self._is_in_string:
            if character < _FIRST_PRINTABLE:
                self.broken = place
            elif self._is_escaped:
                self._is_escaped = False
            elif character == "\\":
                self._is_escaped = True
            elif character == '"':
                self._is_in_string = False
        elif not self._closers:
            if character == "{":
                self._closers.append("}")
            elif not character.isspace():
                self.broken = place
        elif character in _CLOSES:
            self._closers.append(_CLOSES[character])
        elif character == self._closers[-1]:
            self._closers.pop()
            if not self._closers:
                self.end = place + 1
        elif character == '"':
            self._is_in_string = True
        elif character not in _PLAIN:
            self.broken = place
