"""A cached answer: packed when it is stored, and validated before it is returned."""

from typing import Final
from zlib import crc32

import msgspec

from contracts.metering.usage import UNKNOWN_USAGE, Usage
from gateway.wire.exchange import Headers


class UnreadableAnswer(Exception):
    """A stored answer cannot be read."""


class CachedAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="answer.1", kw_only=True):
    """An answer as one client received it, and the facts needed to return it to another.

    A stream consists of its events (`begun`) and its last piece (`end`), a complete answer of `end` only. `seller` is
    the provider, or the kind of target, that was paid for it, `kind` that kind; `usage` is its usage, and
    `cost_pico_usd` its cost by the card `price_version`.
    """

    is_stream: bool
    end: bytes
    begun: bytes = b""
    served: Headers = ()
    model: str = ""
    seller: str = ""
    kind: str = ""
    region: str = ""
    price_version: str = ""
    cost_pico_usd: int | None = None
    finish_reason: str = ""
    usage: Usage = UNKNOWN_USAGE
    tool_calls: int | None = None
    schema_failed: bool | None = None
    verdicts: list[str] = []  # of guardrails


_CHECK_BYTES: Final = 4
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(CachedAnswer).decode
_read_json: Final = msgspec.json.Decoder(msgspec.Raw).decode  # reads all of it and builds nothing


def pack_answer(answer: CachedAnswer) -> bytes:
    """Pack an answer, with a check sum before it."""
    packed = _encode(answer)
    return crc32(packed).to_bytes(_CHECK_BYTES, "big") + packed


def unpack_answer(packed: bytes) -> CachedAnswer:
    """Return the answer that `pack_answer` packed. Raises UnreadableAnswer if it is damaged or not an answer.

    A complete answer must be JSON, so that an error is found here and not by a client's parser.
    """
    view = memoryview(packed)[_CHECK_BYTES:]
    if crc32(view) != int.from_bytes(packed[:_CHECK_BYTES], "big"):
        raise UnreadableAnswer("its check sum does not fit")
    try:
        answer = _decode(view)
        if not answer.is_stream:
            _read_json(answer.end)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UnreadableAnswer(str(error)) from error
    return answer
