"""The shapes of earlier streams' chunks: what a stream alone has in them, its id and its time, is filled in."""

import re
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from backends.llm.http.text_shape import TextShape
from contracts.api.generation import Delta

# The value of an `id` or a `created`, where no character of it is written another way.
_OWN: Final = re.compile(rb'"(?:id|created)":[ ]?("[^"\\]*"|[0-9]+(?=,))')
_ANOTHER: Final = b'"of another stream"'
_SAID: Final = "\x01"
# What says the text again, or parts of it: no two chunks are alike then, and an answer would be kept.
_SAID_AGAIN: Final = re.compile(rb'"(?:logprobs|token_ids)":[ ]?[{\[]')
_LONGEST_OWN: Final = 256  # bytes, as the next
_LONGEST_KEPT: Final = 4096  # of chunks; longer ones are learned from by each stream for itself
_MOST_SHAPES: Final = 8  # of one target: models, reasoning and answer
_MOST_IN_VAIN: Final = 64  # lessons in a row that no later stream had a use for


class _Outline:
    """One shape with what is before its text in pieces; between them is what each stream has its own of."""

    __slots__ = ("_kinds", "_pieces", "shape")

    def __init__(self, shape: TextShape, pieces: list[bytes], kinds: list[bool]) -> None:
        self.shape = shape
        self._pieces = pieces
        self._kinds = kinds  # of what is between them: whether it is a string

    def before_of(self, event: bytes) -> bytes:
        """Fill in what an event has of its own; nothing if it begins otherwise.

        It is the event of a stream whose chunks may be like this: read before, and so known to be JSON.
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
            # After the last of its own an event may go on otherwise: a stream's first names a role as well.
            if number + 1 < len(self._kinds) and event[end : end + len(following)] != following:
                return b""
            place = end + len(following)
        return before


class KnownShapes:
    """The shapes that one target's chunks have had, newest use first.

    What differs between them is the same JSON in another stream: in place of a string another string, in place of a
    number another number, of values that nothing here reads.
    """

    __slots__ = ("_in_vain", "_outlines")

    def __init__(self) -> None:
        self._outlines: list[_Outline] = []
        self._in_vain = 0

    def shape_for(self, event: bytes, *, is_whole: bool) -> TextShape | None:
        """Return the shape that chunks after this event may have.

        `is_whole`: the event is to have it as well, since its stream has shown that its first does not tell. Else it is
        not known yet whether the shape is of use: `was_of_use` is to be told.
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
        """Know that a shape that was given has taken a chunk."""
        self._in_vain = 0

    def keep(self, shape: TextShape, event: bytes, read: Callable[[bytes], Delta | None]) -> None:
        """Keep the shape that was learned of an event for the streams that follow, without what the event says.

        `read` gives what an event carries where that is one delta and nothing else.
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
        if read(event) == read(another + event[len(before) :]):  # nothing reads what is another now
            said = replace(
                shape.delta, text=_SAID if shape.delta.text else "", reasoning=_SAID if shape.delta.reasoning else ""
            )
            self._outlines.insert(0, _Outline(shape.begun_with(another, said), pieces, kinds))
            del self._outlines[_MOST_SHAPES:]


def _end_of_string(event: bytes, place: int) -> int:
    """Return where a JSON string ends that begins here and has no character that is written another way; else
    `place`.
    """
    if not event.startswith(b'"', place):
        return place
    end = event.find(b'"', place + 1, place + _LONGEST_OWN) + 1
    return end if end and event.find(b"\\", place, end) < 0 else place


def _end_of_number(event: bytes, place: int) -> int:
    """Return where the digits end that a comma follows; else `place`."""
    end = event.find(b",", place, place + _LONGEST_OWN)
    return end if end > place and event[place:end].isdigit() else place
