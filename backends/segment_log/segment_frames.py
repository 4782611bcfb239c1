"""The format of entries in a segment file: a number and a tag that only this log can have written, a checksum, the
payload.

Behind damage, the next entry is found by the constant at the beginning of its header, and accepted only if its number
and tag match: the tag is the number XOR the log's marker, 62 random bits that no payload can contain. So bytes in a
payload are never taken for an entry. Earlier releases wrote entries without the first 24 bytes; these can be read too.
Earlier releases, in turn, see the 24 bytes as an entry with a wrong checksum, skip them and read the entry.

The checksum is Adler-32, started with the length. CRC-32, used before, reads 8 KiB of tables, which at low load are not
in the CPU's cache and cost more than everything else for a record (decision 0071).
"""

import errno
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

HEADER: Final = struct.Struct("<IIQQII")  # two constants, number, tag, payload length and kind of checksum, checksum
HEADER_BYTES: Final = HEADER.size
_PLAIN: Final = struct.Struct("<II")  # the last two, which were the whole header
_PLAIN_BYTES: Final = _PLAIN.size
_IS_ADLER: Final = 1 << 31  # in the length; without it the checksum is a CRC-32 of length and payload
# In the earlier format this means that 16 bytes follow. The lower half of their Adler-32 is at most 16 + 16 * 255, so
# never 0xB7F3.
_FIRST: Final = 16 | _IS_ADLER
_SECOND: Final = 0x9D4E_B7F3
_MAGIC: Final = _PLAIN.pack(_FIRST, _SECOND)
_CHUNK_BYTES: Final = 1 << 20
_SECTOR_BYTES: Final = 4096
# Bound to module names, because every record calls them.
_pack: Final = HEADER.pack
_adler32: Final = zlib.adler32


class Frame(NamedTuple):
    """A part of a segment: an entry, or unreadable bytes, whose payload is `None`. Number 0: none."""

    begin: int
    end: int
    payload: bytes | None
    number: int


def frame(payload: bytes, number: int, marker: int) -> bytes:
    """Return an entry's bytes."""
    length = len(payload)
    return _pack(_FIRST, _SECOND, number, number ^ marker, length | _IS_ADLER, _adler32(payload, length)) + payload


def frames(
    descriptor: int, start: int, size: int, markers: Sequence[int] = (), after_number: int = 0
) -> Iterator[Frame]:
    """Yield the frames of a segment from the entry boundary `start` on. Every byte up to `size` is in one of them.

    `markers` are the log's known markers. Entries behind damage are accepted with one of these, or with one that two
    consecutive entries have had before. Memory is bounded by the largest intact entry.
    """
    known = [marker for marker in markers if marker]
    last, offset, base, chunk = after_number, start, start, b""
    while offset < size:
        at = offset - base
        if at + HEADER_BYTES > len(chunk) and base + len(chunk) < size:
            wanted = min(_CHUNK_BYTES, size - offset)
            base, chunk, at = offset, read_at(descriptor, wanted, offset), 0
            if len(chunk) < wanted:
                size = offset + len(chunk)  # the file was truncated meanwhile: use what is left
        number, marker, head, length = _head_at(chunk, at)
        end = offset + head + length
        payload = None
        if length >= 0 and end <= size:
            payload = _sound_payload(descriptor, offset, head, length, chunk, at)
        if payload is not None and number:
            # A lower number belongs to an old entry, which must not be here.
            if not _is_believed(descriptor, marker, known, end, size) or number <= last:
                payload = None
        if payload is None:
            end = _next_sound(descriptor, offset, size, known, last)
            number = 0
        elif number:
            last = number
        yield Frame(offset, end, payload, number)
        offset = end


def _sound_payload(descriptor: int, offset: int, head: int, length: int, chunk: bytes, at: int) -> bytes | None:
    """Return the payload of the entry at `offset`, whose header is at `chunk[at]`; `None` if it is damaged."""
    if at + head + length <= len(chunk):
        payload = chunk[at + head : at + head + length]
    elif length <= _CHUNK_BYTES or _holds_in_pieces(descriptor, offset, head, length):
        payload = read_at(descriptor, length, offset + head)
    else:
        return None
    return payload if _holds(chunk, at + head - _PLAIN_BYTES, payload) else None


def _is_believed(descriptor: int, marker: int, known: list[int], end: int, size: int) -> bool:
    """Return whether an entry with this marker, which ends at `end`, belongs to the log; add a confirmed marker to
    `known`.
    """
    if marker in known:
        return True
    if marker and ((end >= size and not known) or marker == _marker_at(descriptor, end, size)):
        known.append(marker)
        return True
    return False


def last_number(descriptor: int, start: int, size: int, marker: int) -> int:
    """Return the number of the last entry if all from `start` on are intact and numbered without gaps, otherwise 0.

    Several times faster than `frames`.
    """
    last, offset = 0, start
    while offset < size:
        chunk = memoryview(read_at(descriptor, min(_CHUNK_BYTES, size - offset), offset))
        at, last = _walked(chunk, marker, last)
        if at < 0:
            return 0
        if not at:  # the entry is larger than a chunk, or truncated
            number, found, head, length = _head_at(bytes(chunk[:HEADER_BYTES]), 0)
            is_next = number == last + 1 or not last
            if found != marker or not is_next or length < 0 or offset + head + length > size:
                return 0
            if not _holds_in_pieces(descriptor, offset, head, length):
                return 0
            last, at = number, head + length
        offset += at
    return last


def _walked(chunk: memoryview, marker: int, last: int) -> tuple[int, int]:
    """Return the length of the whole entries at a chunk's beginning, and the last one's number; -1 and 0 if one is
    damaged or not the successor of `last`.
    """
    at, available = 0, len(chunk)
    while available - at >= HEADER_BYTES:
        first, second, number, tag, length, checksum = HEADER.unpack_from(chunk, at)
        end = at + HEADER_BYTES + (length & ~_IS_ADLER)
        if end > available:
            break
        is_next = number == last + 1 or not last
        if first != _FIRST or second != _SECOND or number ^ tag != marker or not is_next or not length & _IS_ADLER:
            return -1, 0
        if _adler32(chunk[at + HEADER_BYTES : end], length & ~_IS_ADLER) != checksum:
            return -1, 0
        last, at = number, end
    return at, last


def is_torn(descriptor: int, offset: int, size: int) -> bool:
    """Return whether the entry at `offset` is truncated, as opposed to complete and damaged."""
    _, _, head, length = _head_at(read_at(descriptor, min(HEADER_BYTES, size - offset), offset), 0)
    return length < 0 or offset + head + length > size


def marker_of(descriptor: int, size: int) -> int:
    """Return the marker that a segment's first two entries have in common, or that of its only entry; 0 if there is
    none.
    """
    _, marker, head, length = _head_at(read_at(descriptor, min(HEADER_BYTES, size), 0), 0)
    end = head + length
    if not marker or length < 0 or end > size or not _holds_in_pieces(descriptor, 0, head, length):
        return 0
    return marker if end == size or marker == _marker_at(descriptor, end, size) else 0


def number_at(descriptor: int, offset: int, markers: Sequence[int]) -> int:
    """Return the number in the header at an offset; 0 if there is no header of this log."""
    number, marker, _, _ = _head_at(read_at(descriptor, HEADER_BYTES, offset), 0)
    return number if marker in markers else 0


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Read bytes, fewer at the end of the file. Unreadable sectors are returned as zeros."""
    try:
        return os.pread(descriptor, length, offset)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    pieces, end = list[bytes](), min(offset + length, os.fstat(descriptor).st_size)
    while offset < end:
        upto = min((offset // _SECTOR_BYTES + 1) * _SECTOR_BYTES, end)
        try:
            piece = os.pread(descriptor, upto - offset, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            piece = bytes(upto - offset)
        pieces.append(piece)
        if len(piece) < upto - offset:
            break
        offset = upto
    return b"".join(pieces)


def _head_at(chunk: bytes, at: int) -> tuple[int, int, int, int]:
    """Return number and marker (0: none), the header's size, and the payload's size (-1: the header is truncated).

    A number of -1 is invalid: numbers begin at 1.
    """
    if len(chunk) - at < _PLAIN_BYTES:
        return 0, 0, 0, -1
    first, second = _PLAIN.unpack_from(chunk, at)
    if first != _FIRST or second != _SECOND:
        return 0, 0, _PLAIN_BYTES, first & ~_IS_ADLER
    if len(chunk) - at < HEADER_BYTES:
        return 0, 0, 0, -1
    _, _, number, tag, length, _ = HEADER.unpack_from(chunk, at)
    if not number:
        return -1, 0, HEADER_BYTES, length & ~_IS_ADLER
    return number, number ^ tag, HEADER_BYTES, length & ~_IS_ADLER


def _marker_at(descriptor: int, offset: int, size: int) -> int:
    _, marker, _, _ = _head_at(read_at(descriptor, min(HEADER_BYTES, size - offset), offset), 0)
    return marker


def _next_sound(descriptor: int, damaged: int, size: int, markers: Sequence[int], last: int) -> int:
    """Return the offset of the first intact entry behind damage; `size` if there is none."""
    for offset, header in _headers(descriptor, damaged + 1, size):
        number, marker, head, length = _head_at(header, 0)
        is_ours = marker in markers and number > last and offset + head + length <= size
        if is_ours and _holds_in_pieces(descriptor, offset, head, length):
            return offset
    # No numbered entry: for the earlier format, skip the length that the damaged entry states.
    _, _, head, length = _head_at(read_at(descriptor, min(HEADER_BYTES, size - damaged), damaged), 0)
    end = damaged + head + length
    if length < 0 or head != _PLAIN_BYTES or end + _PLAIN_BYTES > size:
        return size
    _, _, head, length = _head_at(read_at(descriptor, min(HEADER_BYTES, size - end), end), 0)
    is_sound = head == _PLAIN_BYTES and length >= 0 and end + head + length <= size
    return end if is_sound and _holds_in_pieces(descriptor, end, head, length) else size


def _headers(descriptor: int, start: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield possible headers of numbered entries with their offsets."""
    while size - start >= HEADER_BYTES:
        chunk = read_at(descriptor, min(_CHUNK_BYTES, size - start), start)
        at = chunk.find(_MAGIC)
        while 0 <= at <= len(chunk) - HEADER_BYTES:
            yield start + at, chunk[at : at + HEADER_BYTES]
            at = chunk.find(_MAGIC, at + 1)
        if len(chunk) < HEADER_BYTES:
            return  # the file was truncated
        start += len(chunk) - HEADER_BYTES + 1


def _holds(chunk: bytes, at: int, payload: bytes) -> bool:
    """Return whether the checksum at `chunk[at]`, in the last part of a header, matches the payload."""
    length, checksum = _PLAIN.unpack_from(chunk, at)
    if length & _IS_ADLER:
        return bool(checksum == zlib.adler32(payload, length & ~_IS_ADLER))
    return bool(checksum == zlib.crc32(payload, zlib.crc32(chunk[at : at + 4])))


def _holds_in_pieces(descriptor: int, offset: int, head: int, length: int) -> bool:
    """Return whether an entry's checksum matches its payload, read in pieces."""
    at = offset + head
    plain = read_at(descriptor, _PLAIN_BYTES, at - _PLAIN_BYTES)
    if len(plain) < _PLAIN_BYTES:
        return False
    stated, checksum = _PLAIN.unpack(plain)
    is_adler = bool(stated & _IS_ADLER)
    found = stated & ~_IS_ADLER if is_adler else zlib.crc32(plain[:4])
    while length > 0:
        piece = read_at(descriptor, min(length, _CHUNK_BYTES), at)
        if not piece:
            return False
        found = zlib.adler32(piece, found) if is_adler else zlib.crc32(piece, found)
        at += len(piece)
        length -= len(piece)
    return bool(found == checksum)
