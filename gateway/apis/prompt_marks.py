"""Checksums of a prompt's parts: two turns of a session with a common prefix have equal checksums up to the first
difference.

Providers cache prompts by their prefix, in the order tools, instructions, messages. Cache marks, which move from turn
to turn, are left out.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final
from zlib import crc32

import msgspec
from msgspec import Meta

from contracts.api.chat import LoneText, PlainMessage

MOST_MARKS: Final = 1000

_CACHE_MARK: Final = re.compile(rb'"cache_control"\s*:\s*\{[^{}]*\}\s*,?')
_LAST_COMMA: Final = re.compile(rb",\s*\}")  # that a mark has left, if it was the last of its object
_CACHE_NAME: Final = b'"cache_control"'
# Whatever holds instructions and messages, in each API. The first that says something counts.
_INSTRUCTIONS: Final = ("system", "instructions", "systemInstruction")
_MESSAGES: Final = ("messages", "input", "contents")

_bodies: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_lists: Final = msgspec.json.Decoder(list[msgspec.Raw] | None)
_inputs: Final = msgspec.json.Decoder(list[msgspec.Raw] | str | None)  # of the Responses API
_plain: Final = msgspec.json.Decoder(PlainMessage)
_lone_text: Final = msgspec.json.Decoder(Annotated[list[LoneText], Meta(min_length=1, max_length=1)])
# How a message begins that may be of one text alone, as a string or as a list of one block.
_LONE: Final = re.compile(
    rb'\{"role"\s*:\s*"[^"\\]*"\s*,\s*"content"\s*:\s*(?:"|\[\s*\{\s*"(?:type"\s*:\s*"text"|text"))'
)


def marks_of(body: bytes, fields: Mapping[str, msgspec.Raw] | None = None) -> list[int]:
    """Return a checksum for the tools, one for the instructions, and one for each message; at most 1000 in all.

    `fields`: the parsed body, if available. Empty if the prompt cannot be parsed, or the body contains only a part of
    it.
    """
    try:
        given: Mapping[str, msgspec.Raw] = _bodies.decode(body) if fields is None else fields
        if _said(given, "previous_response_id") not in (b"", b"null"):
            return []
        messages = _messages_in(given)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return []
    instructions = b""
    for name in _INSTRUCTIONS:
        instructions = instructions or _said(given, name)
    # One look at all of it is less than one at each part, and from its end less still: the last mark is there.
    has_marks = body.rfind(_CACHE_NAME) >= 0
    marks = [_mark(part, has_marks=has_marks) for part in (_said(given, "tools"), instructions)]
    for message in messages[: MOST_MARKS - 2]:
        marks.append(_mark(bytes(message), has_marks=has_marks))
    return marks


def _said(fields: Mapping[str, msgspec.Raw], name: str) -> bytes:
    raw = fields.get(name)
    return b"" if raw is None else bytes(raw)


def _messages_in(fields: Mapping[str, msgspec.Raw]) -> list[msgspec.Raw]:
    """Return a prompt's messages. Raise msgspec.DecodeError if they are no list."""
    for name in _MESSAGES:
        raw = fields.get(name)
        if raw is None:
            continue
        found: list[msgspec.Raw] | str = _inputs.decode(raw) if name == "input" else _lists.decode(raw)
        if isinstance(found, str):
            found = [msgspec.Raw(found.encode("utf-8", "surrogatepass"))] if found else []
        if found:
            return found
    return []


def _mark(part: bytes, *, has_marks: bool) -> int:
    if has_marks and part.rfind(_CACHE_NAME) >= 0:
        part = _LAST_COMMA.sub(b"}", _CACHE_MARK.sub(b"", part))
    # A message of one text is sent as a string or as a list of one block; a place to cache up to needs the latter.
    # What begins otherwise, as most turns of an agent, is not tried: a failure costs more than the checksum.
    if _LONE.match(part) is None:
        return crc32(part)
    try:
        message = _plain.decode(part)
        text = bytes(message.content)
        if text.startswith(b"["):
            text = bytes(_lone_text.decode(text)[0].text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return crc32(part)
    return crc32(text, crc32(message.role.encode("utf-8", "surrogatepass")))
