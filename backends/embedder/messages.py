"""The protocol between a process and its embedder: length-prefixed msgpack frames."""

from typing import Final, TypeAlias

import msgspec

_LENGTH_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 1 << 20


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The embedder is loaded. `identity` identifies its model."""

    identity: str


class Unusable(msgspec.Struct, frozen=True, tag="unusable"):
    """The embedder cannot be loaded, and why; it ends."""

    reason: str


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """A request to embed a text (UTF-8). With `is_cut` the sender has already truncated the text."""

    number: int
    text: bytes
    most_tokens: int
    is_cut: bool


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """A text's vector: float32, little-endian."""

    number: int
    vector: bytes
    tokens: int
    is_whole: bool


FromEmbedder: TypeAlias = Ready | Unusable | Answer

_encoder = msgspec.msgpack.Encoder()
read_ask = msgspec.msgpack.Decoder(Ask).decode
read_answer = msgspec.msgpack.Decoder(FromEmbedder).decode


def frame(message: Ask | FromEmbedder) -> bytes:
    """Encode a message for the pipe."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "little") + body


def take_frames(buffer: bytearray) -> list[bytes]:
    """Remove the complete frames' bodies from what was read so far. Raises ValueError if that is not a frame."""
    found: list[bytes] = []
    at = 0
    while len(buffer) - at >= _LENGTH_BYTES:
        size = int.from_bytes(buffer[at : at + _LENGTH_BYTES], "little")
        if size > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {size} bytes; {MAX_FRAME_BYTES} is the most")
        end = at + _LENGTH_BYTES + size
        if len(buffer) < end:
            break
        found.append(bytes(buffer[at + _LENGTH_BYTES : end]))
        at = end
    del buffer[:at]
    return found
