"""Splits a socket's bytes into frames: a little-endian u32 length, followed by that many bytes."""

import struct
from typing import Final

from contracts.errors import InvalidRecord

MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
LENGTH_BYTES: Final = 4
_length_at: Final = struct.Struct("<I").unpack_from


class FrameSplitter:
    """Splits a byte stream into the bodies of frames. Raises InvalidRecord on a length that no peer may send."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the bodies they complete."""
        rest = self._rest
        received: bytes | bytearray = data  # almost always complete frames, which need no joining
        if rest:
            rest += data
            received = rest
        bodies: list[bytes] = []
        start, size = 0, len(received)
        while size - start >= LENGTH_BYTES:
            body_at = start + LENGTH_BYTES
            length = _length_at(received, start)[0]
            if length > MAX_FRAME_BYTES:
                raise InvalidRecord(f"a frame of {length} bytes exceeds the limit of {MAX_FRAME_BYTES}")
            end = body_at + length
            if end > size:
                break
            bodies.append(bytes(received[body_at:end]))
            start = end
        if received is rest:
            del rest[:start]
        elif start < size:
            rest += memoryview(data)[start:]
        return bodies
