"""Regular expressions in linear time for any text: RE2's, which has no backreferences and no look-around."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import re2  # type: ignore[import-untyped]  # its wheel has no annotations

# What the module adds around it, for the sake of being like `re`, costs more than most searches do.
from re2 import _re2

from contracts.errors import ConfigurationError

_MAX_MEMORY_BYTES: Final = 16 << 20  # of one expression's automaton; a larger one is worked off more slowly
MAX_CHARACTERS: Final = 10_000  # of one expression that an operator writes
_ANYWHERE: Final = _re2.RE2.Anchor.UNANCHORED
_LOOKS_AROUND: Final = re.compile(r"\(\?(?:<?[=!])|\\[1-9]|\(\?P=")


def _options() -> Any:
    options = _re2.RE2.Options()
    options.max_mem = _MAX_MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True
    return options


class Expression:
    """One or several expressions, any of which may match. Offsets are in characters."""

    __slots__ = ("match",)

    def __init__(self, *sources: str, is_longest: bool = False) -> None:
        """Compile the expressions. Raises ConfigurationError if RE2 refuses them.

        `is_longest`: of the matches with the earliest start, the longest is found, in whatever order the sources are.
        Its automaton has fewer states.
        """
        options = _options()
        options.longest_match = is_longest
        joined = sources[0] if len(sources) == 1 else "|".join(f"(?:{source})" for source in sources)
        found = _re2.RE2(joined.encode(), options)
        if not found.ok():
            raise ConfigurationError(_words(joined, found.error()))
        # Takes bytes, from where on and up to where; gives where the match and its groups are, in bytes.
        self.match = partial(found.Match, _ANYWHERE)

    def start(self, text: str, since: int = 0) -> int:
        """Return the start of the leftmost match at or after `since`; -1 if there is none."""
        data = text.encode()
        if len(data) == len(text):
            return int(self.match(data, since, len(data))[0][0])
        at: int = self.match(data, len(text[:since].encode()) if since else 0, len(data))[0][0]
        return -1 if at < 0 else len(data[:at].decode())

    def first(self, text: str, since: int = 0) -> tuple[int, int]:
        """Return start and end of the leftmost match at or after `since`; -1 if there is none."""
        data = text.encode()
        start: int
        end: int
        if len(data) == len(text):
            start, end = self.match(data, since, len(data))[0]
            return start, end
        start, end = self.match(data, len(text[:since].encode()), len(data))[0]
        if start < 0:
            return start, end
        before = len(data[:start].decode())
        return before, before + len(data[start:end].decode())

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the starts and ends of matches, from left to right, without overlaps and empty matches."""
        data = text.encode()
        size = len(data)
        at = done = characters = 0
        found: list[tuple[int, int]] = []
        while at <= size:
            start, end = self.match(data, at, size)[0]
            if start < 0:
                break
            if end == start:
                at = end + 1
                while at < size and data[at] & 0xC0 == 0x80:
                    at += 1
                continue
            if size == len(text):
                found.append((start, end))
            else:
                first = characters + len(data[done:start].decode())
                characters, done = first + len(data[start:end].decode()), end
                found.append((first, characters))
            at = end
        return found


class ExpressionSet:
    """Several expressions that are searched in one pass; the result is which of them match."""

    __slots__ = ("_all", "_any", "_match")

    def __init__(self, sources: Sequence[str], any_of: Expression) -> None:
        """Compile the patterns. `any_of` matches if any of them does. Raises ConfigurationError if RE2 refuses them."""
        options = _options()
        found = _re2.Set(_ANYWHERE, options)
        for source in sources:
            if found.Add(source.encode()) < 0:
                raise ConfigurationError(_words(source, ""))
        if not found.Compile():
            raise ConfigurationError("the expressions take too much memory together; write smaller counts")
        self._match = found.Match
        self._any = any_of
        self._all = range(len(sources))

    def matching(self, text: str) -> Sequence[int]:
        """Return the indices of the expressions that match anywhere in a text, in order."""
        numbers: list[int] = self._match(text.encode())
        if numbers:
            return sorted(numbers)
        if self._any.start(text) < 0:
            return numbers
        return self._all  # its automaton has run out of memory, of which it says nothing


def checked(source: str, where: str) -> str:
    """Return an operator's expression after checking that RE2 accepts it. Raises ConfigurationError.

    The error names it by `where`, because the expression itself may be confidential.
    """
    if not source or len(source) > MAX_CHARACTERS:
        raise ConfigurationError(f"{where} has {len(source)} characters; give 1 to {MAX_CHARACTERS}")
    try:
        expression = Expression(source)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error.message}") from error
    if expression.start("") >= 0:
        raise ConfigurationError(f"{where} matches the empty text, and so every text; let it ask for a character")
    return source


def escaped(words: str) -> str:
    """Return an expression that matches exactly these words."""
    return str(re2.escape(words))


def _words(source: str, said: object) -> str:
    told = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    told = told.partition(":")[0].strip() or "it cannot be read"
    if _LOOKS_AROUND.search(source) is not None:
        told += "; backreferences and looking around are not supported, as they can take exponential time"
    elif "too large" in told or "memory" in told:
        told += "; write smaller counts, or split it into several"
    return f"the expression is refused: {told}"
