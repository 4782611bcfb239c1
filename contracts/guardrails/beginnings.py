"""Derives from a regular expression one that matches all prefixes of its matches. A stream holds back text that it
matches.

For `ab+c` its language is "", "a", "ab", "abb", ...: everything that further text could complete to a match, or to a
longer one. Expressions are in RE2's syntax, without anchors to the ends of a text, because a stream has no end yet.
"""

import re
from dataclasses import dataclass
from typing import Final

from contracts.errors import ConfigurationError

_COUNTED: Final = re.compile(r"\{(\d+)(,(\d*))?\}")
_GROUP: Final = re.compile(r"\?P?<[A-Za-z_]\w*>|\?([imsU]*(?:-[imsU]+)?):|\?([imsU]*(?:-[imsU]+)?)\)")
_CLASS_PART: Final = re.compile(
    r"\[:\^?[a-z]+:\]|\\[pP]\{\^?\w+\}|\\x\{[0-9A-Fa-f]+\}|\\[0-7]{2,3}|\\.|[^\\]", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(?:[pP]\{\^?\w+\}|[pP]\w|x\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|[0-7]{2,3}|.)", re.DOTALL)
_MOST_DEEP: Final = 50  # nested groups

Beginnings = str | None  # an expression; None: no prefix


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an expression: its source, and what may end a text that this part would continue."""

    source: str
    begins: Beginnings


def beginnings_of(expression: str) -> str:
    """Return an expression for all proper prefixes of what `expression` matches, including the empty text.

    Raises ConfigurationError if the prefixes cannot be determined for an incomplete text.
    """
    reader = _Reader(expression)
    part = reader.choice(0)
    if reader.at < len(expression):
        raise ConfigurationError(f"there is a ')' without its '(' at character {reader.at + 1}")
    return part.begins or ""


class _Reader:
    """Parses an expression from left to right."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self.at = 0

    def choice(self, depth: int) -> _Part:
        """Parse alternatives separated by `|`, up to the group's end."""
        if depth > _MOST_DEEP:
            raise ConfigurationError(f"groups are nested more than {_MOST_DEEP} deep")
        parts = [self._sequence(depth)]
        while self._next() == "|":
            self.at += 1
            parts.append(self._sequence(depth))
        if len(parts) == 1:
            return parts[0]
        begins = [part.begins for part in parts if part.begins is not None]
        return _Part("|".join(part.source for part in parts), _either(begins))

    def _sequence(self, depth: int) -> _Part:
        parts: list[_Part] = []
        while (character := self._next()) and character not in "|)":
            flags = self._flags()
            if flags is not None:  # flags apply to the end of the group
                rest = self.choice(depth + 1)
                inner = None if rest.begins is None else f"(?{flags}:{rest.begins})"
                parts.append(_Part(f"(?{flags}:{rest.source})", inner))
                break
            parts.append(self._repeated(self._one(character, depth)))
        begins: Beginnings = None
        for part in reversed(parts):
            begins = _either([one for one in (part.begins, _after(part.source, begins)) if one is not None])
        return _Part("".join(part.source for part in parts), begins)

    def _flags(self) -> str | None:
        if not self._text.startswith("(?", self.at):
            return None
        found = _GROUP.match(self._text, self.at + 1)
        if found is None:
            shown = self._text[self.at : self.at + 4]
            raise ConfigurationError(f"{shown!r} at character {self.at + 1} is not supported (RE2 looks at no context)")
        if found.group(2) is None:
            return None
        self.at = found.end()
        return found.group(2)

    def _one(self, character: str, depth: int) -> _Part:
        """Parse what a repetition may follow."""
        start = self.at
        if character == "(":
            return self._group(depth)
        if character == "[":
            return self._class()
        if character in "^$":
            raise self._anchored(character)
        if character == "\\":
            found = _ESCAPE.match(self._text, start)
            if found is None:
                raise ConfigurationError("the last character is a backslash that escapes nothing")
            self.at = found.end()
            name = found[0][1:2]
            if name in "AzZ":
                raise self._anchored(found[0])
            if name in "QEC" or name in "123456789":
                raise ConfigurationError(f"{found[0]!r} at character {start + 1} is not supported")
            return _Part(found[0], "")
        if character in "*+?":
            raise ConfigurationError(f"{character!r} at character {start + 1} repeats nothing")
        self.at += 1
        return _Part(character, "")

    def _group(self, depth: int) -> _Part:
        start = self.at
        self.at += 1
        head = "(?:"
        if self._next() == "?":
            found = _GROUP.match(self._text, self.at)
            assert found is not None  # `_flags` has checked it
            head = f"(?{found.group(1)}:" if found.group(1) else head
            self.at = found.end()
        inner = self.choice(depth + 1)
        if self._next() != ")":
            raise ConfigurationError(f"the '(' at character {start + 1} has no ')'")
        self.at += 1
        return _Part(f"{head}{inner.source})", None if inner.begins is None else f"{head}{inner.begins})")

    def _class(self) -> _Part:
        start = self.at
        self.at += 1
        if self._next() == "^":
            self.at += 1
        is_first = True
        while is_first or self._next() != "]":
            found = _CLASS_PART.match(self._text, self.at)
            if found is None:
                raise ConfigurationError(f"the '[' at character {start + 1} has no ']'")
            self.at, is_first = found.end(), False
        self.at += 1
        return _Part(self._text[start : self.at], "")

    def _repeated(self, part: _Part) -> _Part:
        """Parse a repetition of a part."""
        while (character := self._next()) and character in "*+?{":
            start = self.at
            most: int | None = None
            if character == "{":
                found = _COUNTED.match(self._text, start)
                if found is None:
                    break  # a literal brace
                most = int(found[1]) if found[2] is None else int(found[3]) if found[3] else None
                self.at = found.end()
            else:
                most = 1 if character == "?" else None
                self.at += 1
            if self._next() == "?":
                self.at += 1
            before = f"(?:{part.source})" if len(part.source) > 1 and part.source[0] not in "([\\" else part.source
            part = _Part(f"{before}{self._text[start : self.at]}", _repeating(before, most, part.begins))
            if part.begins is None or self._next() not in ("*", "+", "?", "{"):
                break
            part = _Part(f"(?:{part.source})", part.begins)
        return part

    def _next(self) -> str:
        return self._text[self.at : self.at + 1]

    def _anchored(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"{what!r} at character {self.at + 1} means the end of a text, which a stream does not have yet; "
            "use \\b, or look at input only"
        )


def _after(source: str, begins: Beginnings) -> Beginnings:
    """Return the prefixes if a part is complete and `begins` follows."""
    if begins is None:
        return None
    return source if not begins else f"{source}{_grouped(begins)}"


def _repeating(source: str, most: int | None, begins: Beginnings) -> Beginnings:
    if begins is None or most == 0:
        return None
    if most == 1:
        return begins
    earlier = f"{source}*" if most is None else f"{source}{{0,{most - 1}}}"
    return earlier if not begins else f"{earlier}{_grouped(begins)}"


def _either(begins: list[str]) -> Beginnings:
    if not begins:
        return None
    given = [one for one in dict.fromkeys(begins) if one]
    if not given:
        return ""
    if len(given) == len(set(begins)):
        return "|".join(given) if len(given) > 1 else given[0]
    return f"(?:{'|'.join(given)})?"


def _grouped(begins: str) -> str:
    return f"(?:{begins})"
