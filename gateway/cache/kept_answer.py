"""A kept answer: packed to bytes as it is put away, and looked at closely before it is given again."""

from typing import Final
from zlib import crc32

import msgspec

from contracts.metering.usage import UNKNOWN_USAGE, Usage
from gateway.wire.exchange import Headers


class UnreadableAnswer(Exception):
    """What was put away cannot be read any more."""


class KeptAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="answer.1", kw_only=True):
    """An answer as one client had it, and what is to be known of it to give it to another.

    A stream is its events so far (`begun`) and its last piece (`end`), a whole answer `end` alone. `seller` is the
    provider, or the kind of target, that was paid for it, `kind` that kind; `usage` is what it took, and
    `cost_pico_usd` what that was by the card of `price_version`.
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
_decode: Final = msgspec.msgpack.Decoder(KeptAnswer).decode
_read_json: Final = msgspec.json.Decoder(msgspec.Raw).decode  # reads all of it and builds nothing


def pack_answer(answer: KeptAnswer) -> bytes:
    """Pack an answer, with a check sum before it."""
    packed = _encode(answer)
    return crc32(packed).to_bytes(_CHECK_BYTES, "big") + packed


def unpack_answer(packed: bytes) -> KeptAnswer:
    """Return the answer that `pack_answer` packed. Raises UnreadableAnswer if it is not what was packed, or no answer.

    A whole answer must be JSON: a client's parser is not where that should be found out.
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
