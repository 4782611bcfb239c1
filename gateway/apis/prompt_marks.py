"""Checksums of a prompt's parts: two turns of a session that share a prefix have the same ones up to where they differ.

Providers cache prompts by their prefix, in the order tools, instructions, messages. What only marks a place to cache
up to, and moves from turn to turn, is left out.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal
from zlib import crc32

import msgspec
from msgspec import Meta

MOST_MARKS: Final = 1000

_CACHE_MARK: Final = re.compile(rb'"cache_control"\s*:\s*\{[^{}]*\}\s*,?')
_LAST_COMMA: Final = re.compile(rb",\s*\}")  # that a mark has left, if it was the last of its object


class _Plain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: str
    content: msgspec.Raw


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["text"]
    text: msgspec.Raw


class _Prompt(msgspec.Struct, frozen=True):
    tools: msgspec.Raw = msgspec.Raw()
    system: msgspec.Raw = msgspec.Raw()  # Messages
    instructions: msgspec.Raw = msgspec.Raw()  # Responses
    systemInstruction: msgspec.Raw = msgspec.Raw()  # Gemini
    messages: list[msgspec.Raw] | None = None  # chats, Messages
    input: list[msgspec.Raw] | str | None = None  # Responses
    contents: list[msgspec.Raw] | None = None  # Gemini
    previous_response_id: str | None = None


_prompts: Final = msgspec.json.Decoder(_Prompt)
_plain: Final = msgspec.json.Decoder(_Plain)
_lone_text: Final = msgspec.json.Decoder(Annotated[list[_Text], Meta(min_length=1, max_length=1)])
_CACHE_NAME: Final = b'"cache_control"'
# How a message begins that may be of one text alone, as a string or as a list of one block.
_LONE: Final = re.compile(
    rb'\{"role"\s*:\s*"[^"\\]*"\s*,\s*"content"\s*:\s*(?:"|\[\s*\{\s*"(?:type"\s*:\s*"text"|text"))'
)
_encode: Final = msgspec.json.Encoder().encode


def marks_of(body: bytes, fields: Mapping[str, msgspec.Raw] | None = None) -> list[int]:
    """Return a checksum for the tools, one for the instructions, and one for each message, at most 1000 in all.

    `fields` are the body's own where it has been taken apart. Empty if the prompt cannot be read, or if the body has
    only a part of it.
    """
    try:
        prompt = _prompts.decode(body) if fields is None else _taken_apart(fields)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return []
    if prompt.previous_response_id is not None:
        return []
    turns = prompt.messages or prompt.input or prompt.contents or []
    messages = [msgspec.Raw(turns.encode("utf-8", "surrogatepass"))] if isinstance(turns, str) else turns
    instructions = bytes(prompt.system) or bytes(prompt.instructions) or bytes(prompt.systemInstruction)
    parts = [bytes(prompt.tools), instructions, *map(bytes, messages[: MOST_MARKS - 2])]
    has_marks = _CACHE_NAME in body  # one look at all of it is less than one at each part
    return [_mark(_unmarked(part) if has_marks and _CACHE_NAME in part else part) for part in parts]


def _taken_apart(fields: Mapping[str, msgspec.Raw]) -> _Prompt:
    return _prompts.decode(_encode({name: fields[name] for name in _Prompt.__struct_fields__ if name in fields}))


def _unmarked(part: bytes) -> bytes:
    return _LAST_COMMA.sub(b"}", _CACHE_MARK.sub(b"", part))


def _mark(part: bytes) -> int:
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
