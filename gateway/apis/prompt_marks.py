"""Checksums of a prompt's parts: two turns of a session that share a prefix have the same ones up to where they differ.

Providers cache prompts by their prefix, in the order tools, instructions, messages. What only marks a place to cache
up to, and moves from turn to turn, is left out.
"""

import re
from typing import Final
from zlib import crc32

import msgspec

MOST_MARKS: Final = 1000

_CACHE_MARK: Final = re.compile(rb',?\s*"cache_control"\s*:\s*\{[^{}]*\}')
# A message of one text is sent as a string or as a list of one block; a place to cache up to needs the latter.
_LONE_TEXT: Final = re.compile(rb'\[\{"type":\s*"text",\s*"text":\s*("(?:[^"\\]|\\.)*+")\}\]')


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
        part = _CACHE_MARK.sub(b"", part)
    if b'[{"type"' in part:
        part = _LONE_TEXT.sub(rb"\1", part)
    return crc32(part)
