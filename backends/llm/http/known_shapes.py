"""Chunk shapes of earlier streams, reused for later ones: a stream's own id and time are inserted."""

import re
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from backends.llm.http.text_shape import TextShape
from contracts.api.generation import Delta

# The value of an `id` or a `created`, if it has no escaped characters.
_OWN: Final = re.compile(rb'"(?:id|created)":[ ]?("[^"\\]*"|[0-9]+(?=,))')
_ANOTHER: Final = b'"of another stream"'
_SAID: Final = "\x01"
# Fields that repeat parts of the text: chunks then have no common shape, and it would contain an answer's text.
_SAID_AGAIN: Final = re.compile(rb'"(?:logprobs|token_ids)":[ ]?[{\[]')
_LONGEST_OWN: Final = 256  # bytes of a value that differs between streams
_LONGEST_KEPT: Final = 4096  # bytes of a chunk; the shape of longer ones is not kept for other streams
_MOST_SHAPES: Final = 8  # per target: models, reasoning and answer
_MOST_IN_VAIN: Final = 64  # shapes kept in a row that no later stream could use


class _Outline:
    """A chunk shape whose part before the text is split into constant pieces; between these are each stream's own
    values.
    """

    __slots__ = ("_kinds", "_pieces", "shape")

    def __init__(self, shape: TextShape, pieces: list[bytes], kinds: list[bool]) -> None:
        self.shape = shape
        self._pieces = pieces
        self._kinds = kinds  # for each value between two pieces: whether it is a string

    def before_of(self, event: bytes) -> bytes:
        """Return the part before the text with an event's own values inserted; empty if the event begins differently.

        The event has been parsed before, so it is valid JSON.
        """
        pieces = self._pieces
        first = pieces[0]
        if not event.startswith(first):
            return b""
        before, place = first, len(first)
        for number, is_string in enumerate(self._kinds):
            following = pieces[number + 1]
            end = _end_of_string(event, place) if is_string else _end_of_number(event, place)
            if end <= place:
                return b""
            before += event[place:end] + following
            # After its last own value an event may differ: a stream's first one also has a role.
            if number + 1 < len(self._kinds) and event[end : end + len(following)] != following:
                return b""
            place = end + len(following)
        return before


class KnownShapes:
    """The chunk shapes of one target's streams, most recently used first.

    Shapes of different streams differ only in strings and numbers that the gateway does not read.
    """

    __slots__ = ("_in_vain", "_outlines")

    def __init__(self) -> None:
        self._outlines: list[_Outline] = []
        self._in_vain = 0

    def shape_for(self, event: bytes, *, is_whole: bool) -> TextShape | None:
        """Return the shape that the chunks after this event probably have; `None` if none matches.

        `is_whole`: the event itself must have the shape too. Otherwise the event is a stream's first, which may differ,
        and the caller must call `was_of_use` once a chunk has the shape.
        """
        for outline in self._outlines:
            before = outline.before_of(event)
            if before:
                shape = outline.shape.begun_with(before, outline.shape.delta)
                if not is_whole or shape.fits(event):
                    if is_whole:
                        self._in_vain = 0
                    if outline is not self._outlines[0]:
                        self._outlines.remove(outline)
                        self._outlines.insert(0, outline)
                    return shape
        return None

    def was_of_use(self) -> None:
        """Record that a chunk had the shape that was returned."""
        self._in_vain = 0

    def keep(self, shape: TextShape, event: bytes, read: Callable[[bytes], Delta | None]) -> None:
        """Keep a shape for later streams, without the event's text.

        `read` returns an event's delta if the event has nothing else, otherwise `None`.
        """
        if self._in_vain >= _MOST_IN_VAIN or len(event) > _LONGEST_KEPT or _SAID_AGAIN.search(event):
            return
        before = shape.before
        self._in_vain += 1
        pieces: list[bytes] = []
        kinds: list[bool] = []
        place = 0
        for own in _OWN.finditer(before):
            start, end = own.span(1)
            pieces.append(before[place:start])
            kinds.append(before.startswith(b'"', start))
            place = end
        pieces.append(before[place:])
        another = pieces[0]
        for number, is_string in enumerate(kinds):
            another += (_ANOTHER if is_string else b"7") + pieces[number + 1]
        if read(event) == read(another + event[len(before) :]):  # the replaced values are not read
            said = replace(
                shape.delta, text=_SAID if shape.delta.text else "", reasoning=_SAID if shape.delta.reasoning else ""
            )
            self._outlines.insert(0, _Outline(shape.begun_with(another, said), pieces, kinds))
            del self._outlines[_MOST_SHAPES:]


def _end_of_string(event: bytes, place: int) -> int:
    """Return the end of the JSON string that begins at `place`, if it is short and has no escapes;
    otherwise `place`.
    """
    if not event.startswith(b'"', place):
        return place
    end = event.find(b'"', place + 1, place + _LONGEST_OWN) + 1
    return end if end and event.find(b"\\", place, end) < 0 else place


def _end_of_number(event: bytes, place: int) -> int:
    """Return the end of the digits at `place` that a comma follows; otherwise `place`."""
    end = event.find(b",", place, place + _LONGEST_OWN)
    return end if end > place and event[place:end].isdigit() else place
