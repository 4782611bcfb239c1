"""Entries as they stand in a segment file: a header of length and CRC-32, and the payload."""

import os
import struct
import zlib
from collections.abc import Iterator
from typing import Final

HEADER: Final = struct.Struct("<II")  # payload length, CRC-32
LENGTH: Final = struct.Struct("<I")
_CHUNK_BYTES: Final = 1 << 20


def frame(payload: bytes) -> bytes:
    """Give an entry as it is written."""
    length = LENGTH.pack(len(payload))
    return length + LENGTH.pack(zlib.crc32(payload, zlib.crc32(length))) + payload


def frames(descriptor: int, start: int, size: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Walk a segment: (start, end, payload) of each entry, with payload `None` for a damaged stretch."""
    offset, base, chunk = start, start, b""
    while offset < size:
        head = chunk[offset - base : offset - base + HEADER.size]
        length, checksum = HEADER.unpack(head) if len(head) == HEADER.size else (0, 0)
        end = offset + HEADER.size + length
        if base + len(chunk) < min(end, size):
            wanted = min(max(_CHUNK_BYTES, end - offset), size - offset)
            base, chunk = offset, os.pread(descriptor, wanted, offset)
            if len(chunk) < wanted:
                size = offset + len(chunk)  # someone cut the file: judge what is left of it
            continue
        payload = chunk[offset - base + HEADER.size : end - base]
        if end <= size and len(head) == HEADER.size and checksum == zlib.crc32(payload, zlib.crc32(head[:4])):
            yield offset, end, payload
        else:
            end = end if end < size and _is_sound(descriptor, end, size) else size
            yield offset, end, None
        offset = end


def _is_sound(descriptor: int, offset: int, size: int) -> bool:
    head = os.pread(descriptor, HEADER.size, offset)
    if len(head) < HEADER.size or offset + HEADER.size + LENGTH.unpack(head[:4])[0] > size:
        return False
    length, checksum = HEADER.unpack(head)
    payload = os.pread(descriptor, length, offset + HEADER.size)
    return bool(checksum == zlib.crc32(payload, zlib.crc32(head[:4])))


def is_torn(descriptor: int, offset: int, size: int) -> bool:
    """Whether the entry at `offset` is cut short, as opposed to complete and damaged."""
    head = os.pread(descriptor, min(HEADER.size, size - offset), offset)
    return len(head) < HEADER.size or bool(offset + HEADER.size + LENGTH.unpack(head[:4])[0] > size)
