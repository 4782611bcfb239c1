"""Recognizes chunks that differ only in their text by comparing bytes, without parsing their JSON."""

import re
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, cast

import msgspec

from backends.http_client.http_connection import ChunkTaker
from backends.llm.base import Sink
from contracts.api.generation import Delta

# The names of fields with generated text, as they precede its JSON string.
_FIELDS: Final = (b'"content":', b'"text":', b'"reasoning_content":', b'"reasoning":')
_STRING: Final = re.compile(rb' ?("[^"\\]*(?:\\.[^"\\]*)*")')
# OpenAI's random padding, which hides the length of a chunk's text.
_FILLING: Final = re.compile(rb'"obfuscation":[ ]?("[^"\\]*")')
_MARK: Final = "\x01no-model-says-this\x02"  # one word, so that it counts as one token
_MARK_JSON: Final = msgspec.json.encode(_MARK)
_SIZE_DIGITS: Final = (2, 3, 4, 5, 6, 1)  # possible numbers of digits of a chunk's size, most frequent first
_USUAL_LENGTHS: Final = 2048  # the size lines of chunks up to this length are precomputed

Tell: TypeAlias = Callable[[bytes], object]

_text: Final = msgspec.json.Decoder(str).decode
_replace: Final = msgspec.structs.replace


def _size_line(length: int) -> bytes:
    """Return the line at the beginning of a chunk of `length` bytes, which states the size of the data after it."""
    for digits in _SIZE_DIGITS:
        size = length - digits - 4  # 4: the line ends after the size and after the event
        line = b"%x\r\n" % size if size > 0 else b""
        if len(line) == digits + 2:
            return line
    return b"\r\n"  # matches no chunk


_size_lines: Final = [_size_line(length) for length in range(_USUAL_LENGTHS)]


class TextShape(ChunkTaker):
    """Recognizes stream chunks that have the same bytes before and after their text, in HTTP's chunked framing.

    A chunk with these bytes and one JSON string between them, not empty, is the same chunk with another text: replacing
    a string changes nothing else in a JSON document.
    """

    __slots__ = ("_after", "_before", "_passing", "count", "delta")

    def __init__(self, before: bytes, after: bytes, delta: Delta) -> None:
        self._before = before
        self._after = after + b"\r\n"
        self.delta = delta  # of the chunk from which the shape was derived
        self._passing: ChunkTaker = _NOBODY
        self.count = 0  # chunks processed

    @staticmethod
    def learn(event: bytes, read: Callable[[bytes], Delta | None]) -> "TextShape | None":
        """Derive the shape of an event by replacing its text and parsing the result; `None` if that does not work.

        `read` returns an event's delta if the event has nothing else, otherwise `None`.
        """
        delta = read(event)
        if delta is None or delta.tokens != 1 or (delta.text and delta.reasoning):
            return None
        if delta != Delta(1, delta.text, delta.reasoning, delta.index, reasoning_tokens=delta.reasoning_tokens):
            return None
        marked = _replace(delta, text=_MARK) if delta.text else _replace(delta, reasoning=_MARK)
        for field in _FIELDS:
            found = _STRING.match(event, event.find(field) + len(field)) if field in event else None
            if found is not None:
                start, stop = found.span(1)
                if read(event[:start] + _MARK_JSON + event[stop:]) == marked:
                    return _shape_around(event[:start], event[stop:], delta)
        return None

    def fits(self, event: bytes) -> bool:
        """Return whether an event that was parsed has this shape."""
        return event.startswith(self._before) and event.endswith(self._after[:-2])

    def begun_with(self, before: bytes, delta: Delta) -> "TextShape":
        """Return the same shape with other bytes before the text."""
        return TextShape(before, self._after[:-2], delta)

    @property
    def before(self) -> bytes:
        """Return the bytes before the text."""
        return self._before

    def pass_to(self, sink: Sink) -> None:
        """Set the sink that processed chunks are passed to."""
        ask: Callable[[Delta], Tell | None] | None = getattr(sink, "relay", None)
        relay: object = None if ask is None else ask(self.delta)
        if isinstance(relay, ChunkTaker):  # checked first, as such a relay is also callable
            self._passing = relay
        else:
            self._passing = _Telling(cast("Tell | None", relay) or partial(self._tell, sink))

    def take(self, framed: bytes) -> bool:
        """Pass a chunk on if it has this shape's bytes around a text of one token; return whether it was passed on.

        `framed` is one whole chunk with its size line.
        """
        between = self._between(framed)
        try:
            if not between or between.find(b" ", 2, -2) >= 0 or between.find(b"\\n", 2, -2) >= 0 or not _text(between):
                return False  # several words are parsed, and counted as several tokens
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        if not self._passing.take(framed):
            return False
        self.count += 1
        return True

    def _between(self, framed: bytes) -> bytes:
        """Return the bytes between the shape's beginning and end; empty if the chunk does not have this shape."""
        length = len(framed)
        line = _size_lines[length] if length < _USUAL_LENGTHS else _size_line(length)
        before, after = self._before, self._after
        if not framed.startswith(line) or not framed.endswith(after):
            return b""
        event = framed[len(line) :]  # a copy, because `startswith` with an offset is slower
        return event[len(before) : -len(after)] if event.startswith(before) else b""

    def _tell(self, sink: Sink, framed: bytes) -> None:
        """Pass an event of this shape to a sink without a `relay`."""
        event, known = framed[framed.index(b"\n") + 1 : -2], self.delta
        text = _text(self._text_json(event[len(self._before) : len(event) + 2 - len(self._after)]))
        said = (text, "") if known.text else ("", text)
        delta = Delta(1, *said, index=known.index, reasoning_tokens=known.reasoning_tokens)
        sink.event(event, (delta,), is_usage_only=False)

    def _text_json(self, between: bytes) -> bytes:
        """Return the text's JSON out of the bytes between the shape's beginning and end."""
        return between


class FilledShape(TextShape):
    """A shape with a second varying string, the padding, whose content is ignored."""

    __slots__ = ("_middle",)

    def __init__(self, before: bytes, middle: bytes, after: bytes, delta: Delta) -> None:
        super().__init__(before, after, delta)
        self._middle = middle

    def fits(self, event: bytes) -> bool:
        """Return whether an event that was parsed has this shape."""
        return super().fits(event) and self._middle in event

    def begun_with(self, before: bytes, delta: Delta) -> TextShape:
        """Return the same shape with other bytes before the text."""
        return FilledShape(before, self._middle, self._after[:-2], delta)

    def take(self, framed: bytes) -> bool:
        """Pass a chunk on if it has this shape's bytes around one word of text; return whether it was passed on."""
        text, middle, filling = self._between(framed).partition(self._middle)
        try:
            if not middle or text.find(b" ", 2, -2) >= 0 or text.find(b"\\n", 2, -2) >= 0 or not _text(text):
                return False
            _text(filling)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        if not self._passing.take(framed):
            return False
        self.count += 1
        return True

    def _text_json(self, between: bytes) -> bytes:
        return between.partition(self._middle)[0]


def _shape_around(before: bytes, after: bytes, delta: Delta) -> TextShape:
    filling = _FILLING.search(after)
    if filling is None:
        return TextShape(before, after, delta)
    return FilledShape(before, after[: filling.start(1)], after[filling.end(1) :], delta)


class _Nobody(ChunkTaker):
    """Drops chunks while there is no sink."""

    __slots__ = ()

    def take(self, framed: bytes) -> bool:
        return True


class _Telling(ChunkTaker):
    """Passes chunks to a callable."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def take(self, framed: bytes) -> bool:
        self._tell(framed)
        return True


_NOBODY: Final = _Nobody()
