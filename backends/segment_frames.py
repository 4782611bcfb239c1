"""Entries as they stand in a segment file: a header of length and checksum, and the payload.

The checksum is Adler-32, begun with the length. CRC-32, which entries had before, walks through 8 KiB of tables: where
requests are few these are cold, and cost one more than all else of its record's way (decision 0071).
"""

import os
import struct
import zlib
from collections.abc import Iterator
from typing import Final

HEADER: Final = struct.Struct("<II")  # payload length and kind of checksum, checksum
_IS_ADLER: Final = 1 << 31  # in the first; without it the checksum is a CRC-32 of length and payload
_CHUNK_BYTES: Final = 1 << 20
# Under their own names: every record's way leads through them.
_pack: Final = HEADER.pack
_adler32: Final = zlib.adler32


def frame(payload: bytes) -> bytes:
    """Give an entry as it is written."""
    length = len(payload)
    return _pack(length | _IS_ADLER, _adler32(payload, length)) + payload


def frames(descriptor: int, start: int, size: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Walk a segment: (start, end, payload) of each entry, with payload `None` for a damaged stretch."""
    offset, base, chunk = start, start, b""
    while offset < size:
        head = chunk[offset - base : offset - base + HEADER.size]
        end = offset + HEADER.size + _length_in(head)
        if base + len(chunk) < min(end, size):
            wanted = min(max(_CHUNK_BYTES, end - offset), size - offset)
            base, chunk = offset, os.pread(descriptor, wanted, offset)
            if len(chunk) < wanted:
                size = offset + len(chunk)  # someone cut the file: judge what is left of it
            continue
        payload = chunk[offset - base + HEADER.size : end - base]
        if end <= size and _holds(head, payload):
            yield offset, end, payload
        else:
            end = end if end < size and _is_sound(descriptor, end, size) else size
            yield offset, end, None
        offset = end


def _is_sound(descriptor: int, offset: int, size: int) -> bool:
    head = os.pread(descriptor, HEADER.size, offset)
    length = _length_in(head)
    if offset + HEADER.size + length > size:
        return False
    return _holds(head, os.pread(descriptor, length, offset + HEADER.size))


def is_torn(descriptor: int, offset: int, size: int) -> bool:
    """Whether the entry at `offset` is cut short, as opposed to complete and damaged."""
    head = os.pread(descriptor, min(HEADER.size, size - offset), offset)
    return len(head) < HEADER.size or offset + HEADER.size + _length_in(head) > size


def _length_in(head: bytes) -> int:
    """Give the payload's length as a header says it; 0 where the header is cut short."""
    if len(head) < HEADER.size:
        return 0
    length: int = HEADER.unpack(head)[0]
    return length & ~_IS_ADLER


def _holds(head: bytes, payload: bytes) -> bool:
    """Say whether an entry's checksum is its payload's."""
    if len(head) < HEADER.size:
        return False
    length, checksum = HEADER.unpack(head)
    if length & _IS_ADLER:
        return bool(checksum == zlib.adler32(payload, length & ~_IS_ADLER))
    return bool(checksum == zlib.crc32(payload, zlib.crc32(head[:4])))
