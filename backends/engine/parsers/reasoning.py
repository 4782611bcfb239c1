"""Parses reasoning at the start of an answer, between two tags. The opening tag may be at the end of the prompt.

A tag in the middle of an answer is text.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from backends.engine.parsers.tag import begun_tag

_NOWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """The tags around a model's reasoning."""

    open: str
    close: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """New output that will not change any more. White space around the tags is dropped."""

    reasoning: str = ""
    content: str = ""


class _State(Enum):
    BEGIN = "begin"
    ENTERED = "entered"  # white space before the reasoning
    INSIDE = "inside"
    LEFT = "left"  # white space before the answer
    CONTENT = "content"


@dataclass(frozen=True, slots=True)
class _Token:
    start: int  # positions in the choice's text
    end: int
    weight: int


class ReasoningParser:
    """Parses one choice, and counts tokens whose text is entirely reasoning; tokens of the tags do not count."""

    def __init__(self, tags: ReasoningTags, *, is_open: bool) -> None:
        """`is_open`: the prompt ends with the opening tag."""
        self._tags = tags
        self._is_open = is_open
        self._state = _State.BEGIN
        self._held = ""
        self._place = 0  # position of `_held` in the choice's text
        self._start = 0 if is_open else _NOWHERE
        self._end = _NOWHERE
        self._written = 0  # characters of all tokens so far
        self._textless = 0  # weight of tokens whose text comes with a later token
        self._undecided: deque[_Token] = deque()
        self._count = 0

    @property
    def tokens(self) -> int:
        """Return the number of reasoning tokens so far."""
        unfinished = sum(map(self._counted, self._undecided)) if self._is_reasoning else 0
        return self._count + unfinished

    def note_tokens(self, lengths: Sequence[int], weight: int = 1) -> None:
        """Add tokens by the number of characters of each; their text may be pushed later. Weight 0: not counted."""
        if self._is_over:
            return
        for length in lengths:
            self._textless += weight
            if length:
                end = self._written + length
                self._undecided.append(_Token(self._written, end, self._textless))
                self._written, self._textless = end, 0

    def push(self, text: str) -> ReasoningPiece:
        """Parse further text and return the output that is certain."""
        if self._is_over:
            return ReasoningPiece(content=text)
        self._held += text
        reasoning: list[str] = []
        while self._advance(reasoning):
            pass
        content = self._take(len(self._held)) if self._is_over else ""
        self._decide()
        return ReasoningPiece("".join(reasoning), content)

    def finish(self) -> ReasoningPiece:
        """Return the remaining output at the end."""
        held, self._held = self._held, ""
        if self._state is _State.LEFT:
            return ReasoningPiece()
        return ReasoningPiece(reasoning=held) if self._is_reasoning else ReasoningPiece(content=held)

    @property
    def _is_over(self) -> bool:
        return self._state is _State.CONTENT

    @property
    def _is_reasoning(self) -> bool:
        return self._start != _NOWHERE and self._end == _NOWHERE

    def _advance(self, reasoning: list[str]) -> bool:
        """Advance by one state; False if more text is needed, or no more reasoning follows."""
        match self._state:
            case _State.BEGIN:
                return self._begin()
            case _State.ENTERED:
                return self._pass_space(_State.INSIDE)
            case _State.INSIDE:
                return self._inside(reasoning)
            case _State.LEFT:
                return self._pass_space(_State.CONTENT)
            case _State.CONTENT:
                return False

    def _begin(self) -> bool:
        rest, tag = self._held.lstrip(), self._tags.open
        if tag.startswith(rest) and rest != tag:
            return False
        if rest.startswith(tag):  # also if the prompt ends with the tag: some models repeat it
            self._take(len(self._held) - len(rest) + len(tag))
            self._start = self._place
            self._state = _State.ENTERED
        else:
            self._state = _State.ENTERED if self._is_open else _State.CONTENT
        return True

    def _pass_space(self, then: _State) -> bool:
        self._take(len(self._held) - len(self._held.lstrip()))
        if not self._held:
            return False
        self._state = then
        return True

    def _inside(self, reasoning: list[str]) -> bool:
        before, found, _ = self._held.partition(self._tags.close)
        if found:
            reasoning.append(self._take(len(before)))
            self._end = self._place
            self._take(len(found))
            self._state = _State.LEFT
            return True
        reasoning.append(self._take(len(before) - begun_tag(before, self._tags.close)))
        return False

    def _take(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        self._place += length
        return text

    def _decide(self) -> None:
        if self._state is _State.BEGIN:
            return
        is_over = not self._is_reasoning
        while self._undecided and (is_over or self._undecided[0].end <= self._place):
            self._count += self._counted(self._undecided.popleft())

    def _counted(self, token: _Token) -> int:
        is_inside = token.start >= self._start and (self._end == _NOWHERE or token.end <= self._end)
        return token.weight if is_inside and self._start != _NOWHERE else 0
