"""Checksums of a prompt's parts: two turns of a session that share a prefix have the same ones up to where they differ.

Providers cache prompts by their prefix, in the order tools, instructions, messages. What only marks a place to cache
up to, and moves from turn to turn, is left out.
"""

import re
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
_ROLE: Final = b'{"role"'
_TYPE: Final = b'"type"'


def marks_of(body: bytes) -> list[int]:
    """Return a checksum for the tools, one for the instructions, and one for each message, at most 1000 in all.

    Empty if the prompt cannot be read, or if the body has only a part of it.
    """
    try:
        prompt = _prompts.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return []
    if prompt.previous_response_id is not None:
        return []
    turns = prompt.messages or prompt.input or prompt.contents or []
    messages = [msgspec.Raw(turns.encode("utf-8", "surrogatepass"))] if isinstance(turns, str) else turns
    instructions = bytes(prompt.system) or bytes(prompt.instructions) or bytes(prompt.systemInstruction)
    parts = [bytes(prompt.tools), instructions, *map(bytes, messages[: MOST_MARKS - 2])]
    return [_mark(part) for part in parts]


def _mark(part: bytes) -> int:
    if b'"cache_control"' in part:
        part = _LAST_COMMA.sub(b"}", _CACHE_MARK.sub(b"", part))
    if not part.startswith(_ROLE) or part.count(_TYPE) > (b'"text"' in part):
        return crc32(part)
    # A message of one text is sent as a string or as a list of one block; a place to cache up to needs the latter.
    # What has more blocks or others, as most turns of an agent, is not tried: a failure costs more than the checksum.
    try:
        message = _plain.decode(part)
        text = bytes(message.content)
        if text.startswith(b"["):
            text = bytes(_lone_text.decode(text)[0].text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return crc32(part)
    return crc32(text, crc32(message.role.encode("utf-8", "surrogatepass")))
